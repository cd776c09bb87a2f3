//! The page of a report.

use super::html::{ReportTable, formulas};
use super::{ReportOptions, conjectures, examples, tables};
use crate::figures::{self, PlottedRun};
use crate::plot::{
    Figure, FigurePanel, PanelContent, PanelShape, entries, escape, hover_json, panel_svg, swatch_svg, theme,
};
use crate::run::{RunData, metric};
use crate::stats::pass_at_k_interval;
use std::fmt::Write;
use std::hash::{Hash, Hasher};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The content of a page without its frame.
#[derive(Clone, Debug, Default)]
pub struct Fragment {
    /// Title of the page.
    pub title: String,
    /// The sections below the navigation bar, in order.
    pub parts: Vec<PageSection>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The tables by file name.
    pub tables: Vec<(String, ReportTable)>,
}

/// A section of a page. The live page replaces it when it changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageSection {
    /// Anchor.
    pub id: String,
    /// Title, and name in the navigation. A section with an empty name is not in the navigation.
    pub name: String,
    /// The content as markup.
    body: String,
}

impl PageSection {
    /// Renders the section as an HTML element.
    pub fn html(&self) -> String {
        let (id, tag, body) = (&self.id, self.tag(), &self.body);
        match self.name.as_str() {
            "" => format!(r#"<div id="{id}" data-tag="{tag}">{body}</div>"#),
            name => {
                format!(r#"<section id="{id}" data-tag="{tag}"><h2>{}</h2>{body}</section>"#, escape(name))
            }
        }
    }

    /// Returns a hash of the content, by which an open page detects changes.
    pub fn tag(&self) -> String {
        let mut hasher = std::hash::DefaultHasher::new();
        (&self.name, &self.body).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

impl Fragment {
    fn section(&mut self, id: &str, name: &str, body: &str) {
        self.parts.push(PageSection { id: id.to_owned(), name: name.to_owned(), body: body.to_owned() });
    }

    fn table(&mut self, name: &str, table: ReportTable) -> String {
        let html = table.html();
        self.tables.push((name.to_owned(), table));
        html
    }
}

/// Creates the content of a report on one or several runs.
pub fn fragment(runs: &[RunData], options: &ReportOptions) -> Fragment {
    let drawn = figures::draw(runs, &options.figures);
    let mut out = Fragment { title: title(runs), ..Fragment::default() };
    let figures = figures::all(&drawn, &options.figures);
    let head = head(&drawn, &out.title) + &notes(&drawn);
    out.section("head", "", &head);
    if runs.iter().all(RunData::is_empty) {
        let text = "No round is finished yet. The first figures appear after one round, curves after two, and a scaling law after about ten.";
        out.section("empty", "", &format!(r#"<p class="empty">{text}</p>"#));
    }
    if drawn.len() > 1 {
        let table = out.table("runs", tables::summary(&drawn));
        out.section("runs", "Runs", &table);
    }
    let mut shown: Vec<&Figure> = figures.iter().collect();
    let mut take = |id: &str| {
        let at = shown.iter().position(|f| f.id == id)?;
        Some(shown.remove(at))
    };
    for group in GROUPS {
        for id in group.figures {
            if let Some(figure) = take(id) {
                let body = figure_html(figure) + &after_figure(id, &mut out, &drawn, options);
                out.section(&figure.id, &figure.title, &body);
            }
        }
        for (id, name, body) in (group.then)(&mut out, &drawn) {
            out.section(&id, &name, &body);
        }
    }
    let reproduce = options.reproduce.clone().unwrap_or_else(|| reproduce(runs));
    let body = configurations(&drawn, &reproduce);
    out.section("configuration", "Configuration and reproduction", &body);
    out.figures = figures;
    out
}

type Extra = fn(&mut Fragment, &[PlottedRun<'_>]) -> Vec<(String, String, String)>;

struct SectionGroup {
    figures: &'static [&'static str],
    then: Extra,
}

const GROUPS: [SectionGroup; 4] = [
    SectionGroup {
        figures: &[
            "cumulative-solve-rate",
            "held-out",
            "fit-sensitivity",
            "baselines",
            "ablations",
            "hard-targets",
            "wall-time",
            "training-dynamics",
        ],
        then: pass_at_section,
    },
    SectionGroup { figures: &["novelty", "guide", "conjecture-quality"], then: conjecture_sections },
    SectionGroup { figures: &["solve-proximity"], then: solved_sections },
    SectionGroup {
        figures: &["entropy", "baseline-entropy", "verdicts", "health", "timings", "data-set"],
        then: |_, _| Vec::new(),
    },
];

fn pass_at_section(out: &mut Fragment, drawn: &[PlottedRun<'_>]) -> Vec<(String, String, String)> {
    let Some(table) = tables::pass_at(drawn) else { return Vec::new() };
    let body = format!(
        r#"<p class="caption">Unbiased estimates over the rollouts of one round, with 95% bootstrap intervals over the targets.</p>{}"#,
        out.table("pass-at-k", table)
    );
    vec![("pass-at-k".into(), "pass@k on the targets".into(), body)]
}

fn conjecture_sections(_: &mut Fragment, drawn: &[PlottedRun<'_>]) -> Vec<(String, String, String)> {
    let each = drawn.iter().enumerate().filter_map(|(i, d)| {
        let name = named("Conjectures over the rounds", drawn, d);
        Some((format!("conjecture-examples-{i}"), name, examples::conjectures(d.run, i)?))
    });
    each.collect()
}

fn solved_sections(_: &mut Fragment, drawn: &[PlottedRun<'_>]) -> Vec<(String, String, String)> {
    let each = drawn.iter().enumerate().filter_map(|(i, d)| {
        let name = named("Solved targets and their proofs", drawn, d);
        Some((format!("solved-examples-{i}"), name, examples::solved(d.run, i)?))
    });
    each.collect()
}

fn named(what: &str, drawn: &[PlottedRun<'_>], d: &PlottedRun<'_>) -> String {
    if drawn.len() > 1 { format!("{what}: {}", d.label) } else { what.to_owned() }
}

/// Renders the tables below a figure.
fn after_figure(id: &str, out: &mut Fragment, drawn: &[PlottedRun<'_>], options: &ReportOptions) -> String {
    let mut html = String::new();
    match id {
        "cumulative-solve-rate" => {
            html.push_str("<h3>Scaling laws</h3>");
            html.push_str(&tables::fits(drawn, &options.figures).html());
            out.tables.push(("scaling-laws".into(), tables::fits_as_numbers(drawn, &options.figures)));
            html.push_str(&tables::what_to_know(drawn));
            let reaching = if let [d] = drawn { tables::reaching_one(d) } else { tables::reaching(drawn) };
            if let Some(table) = reaching {
                html.push_str("<h3>Generations and wall time to reach a rate</h3>");
                html.push_str(&out.table("reaching", table));
            }
            if let Some(table) = (drawn.len() > 1).then(|| tables::against(drawn)).flatten() {
                let groups = figures::groups(drawn);
                let main = tables::main_group(&groups, drawn).map_or("", |g| g.label.as_str());
                let _ = write!(html, "<h3>{} against the others</h3>", escape(main));
                html.push_str(&out.table("against", table));
            }
        }
        "held-out" => {
            if let Some(table) = tables::learnt(drawn) {
                html.push_str(&out.table("held-out-and-targets", table));
            }
        }
        "novelty" => {
            let Some(d) = figures::main_run(drawn) else { return html };
            if let Some(table) = conjectures::origins(d.run) {
                html.push_str(&out.table("conjecture-origins", table));
            }
            if let Some(table) = conjectures::frequent(d.run) {
                html.push_str("<h3>Most frequent statements</h3>");
                html.push_str(&out.table("conjectures-most-often", table));
            }
        }
        "guide" => {
            let Some(d) = figures::main_run(drawn) else { return html };
            html.push_str("<h3>Does the Guide help?</h3>");
            html.extend(conjectures::verdict(d));
            if let Some(table) = conjectures::rejected(d.run) {
                html.push_str("<h3>Scored 0 by the Guide, but rewarded without it</h3>");
                html.push_str(&out.table("conjectures-rejected", table));
            }
        }
        "fit-sensitivity" => {
            let table = figures::main_run(drawn).and_then(tables::robustness);
            if let Some(table) = table {
                html.push_str(&out.table("fit-sensitivity-parameters", table));
            }
        }
        "timings" => {
            if let Some(table) = figures::main_run(drawn).and_then(|d| tables::timings(d.run)) {
                html.push_str(&out.table("timings-by-stage", table));
            }
        }
        _ => {}
    }
    html
}

fn title(runs: &[RunData]) -> String {
    match runs {
        [] => "No run".to_owned(),
        [run] => run.name.clone(),
        many => format!("Comparison of {} runs", many.len()),
    }
}

/// Renders the title, the method and the most important numbers.
fn head(drawn: &[PlottedRun<'_>], title: &str) -> String {
    let mut out = format!("<header class=\"head\"><h1>{}</h1>", escape(title));
    if let [d] = drawn {
        let mut facts = Vec::new();
        facts.extend(d.run.method.map(|m| m.description().to_owned()));
        facts.extend(d.run.seed.map(|s| format!("seed {s}")));
        facts.extend(d.run.version.as_ref().map(|v| format!("sgs {v}")));
        let _ = write!(out, "<p>{}</p>", escape(&facts.join(" · ")));
        out.push_str(&tiles(d));
    } else {
        let names: Vec<String> = drawn.iter().map(|d| d.label.clone()).collect();
        let _ = write!(out, "<p>{}</p>", escape(&names.join(" · ")));
    }
    out.push_str("</header>");
    out
}

fn tiles(d: &PlottedRun<'_>) -> String {
    let run = d.run;
    let mut tiles: Vec<(String, String)> = Vec::new();
    if let Some(rate) = run.last(metric::CUMULATIVE) {
        tiles.push((format!("{:.1}%", 100.0 * rate), "cumulative solve rate".to_owned()));
    }
    if let (Some(solved), Some(all)) = (run.last(metric::SOLVED_EVER), run.last(metric::TARGETS)) {
        tiles.push((format!("{solved:.0} of {all:.0}"), "targets solved".to_owned()));
    }
    if let Some(last) = run.held_out().next_back()
        && let Some(rate) = pass_at_k_interval(&last.held_out, last.samples(), 0.95, 1)
    {
        tiles.push((format!("{:.1}%", 100.0 * rate.value), format!("held out, pass@{}", last.samples())));
    }
    let first = run.curve().first().map(|p| p.rate);
    if let (Some(first), Some(last), true) = (first, run.last(metric::CUMULATIVE), run.rounds.len() > 1) {
        tiles.push((
            format!("{:+.1}", 100.0 * (last - first)).replace('-', "−"),
            "points since the first round".to_owned(),
        ));
    }
    if let Some(generations) = run.last(metric::GENERATIONS) {
        tiles.push((
            crate::plot::format_value(generations, crate::plot::Unit::Count, 3),
            "generations".to_owned(),
        ));
    }
    tiles.push((run.rounds.len().to_string(), "rounds".to_owned()));
    if let Some(seconds) = tables::wall_time(run) {
        tiles.push((
            crate::plot::format_value(seconds, crate::plot::Unit::Duration, 3),
            "wall time".to_owned(),
        ));
    }
    let text = d.fit.as_ref().map_or_else(|_| figures::NOT_YET.to_owned(), figures::describe);
    tiles.push(match text.split_once(" ± ") {
        Some((value, error)) => (value.to_owned(), format!("fitted asymptote A, ± {error}")),
        None => (text, "fitted asymptote".to_owned()),
    });
    let each: String = tiles
        .iter()
        .map(|(value, name)| format!("<div><dd>{}</dd><dt>{name}</dt></div>", escape(value)))
        .collect();
    format!(r#"<dl class="tiles">{each}</dl>"#)
}

/// Renders the limitations of the data.
fn notes(drawn: &[PlottedRun<'_>]) -> String {
    let mut items = Vec::new();
    for d in drawn {
        let prefix = if drawn.len() > 1 { format!("{}: ", d.label) } else { String::new() };
        items.extend(d.run.notes.iter().map(|n| format!("{prefix}{n}")));
    }
    items.extend(figures::repeats(drawn));
    if items.is_empty() {
        return String::new();
    }
    let list: String = items.iter().map(|i| format!("<li>{}</li>", escape(i))).collect();
    format!(
        r#"<details class="notes"{}><summary>{}</summary><ul>{list}</ul></details>"#,
        if items.len() <= 3 { " open" } else { "" },
        match items.len() {
            1 => "1 note".to_owned(),
            n => format!("{n} notes"),
        }
    )
}

fn figure_html(figure: &Figure) -> String {
    let mut out = format!(r#"<p class="caption">{}</p>"#, formulas(&figure.caption));
    let legend = entries(figure);
    if !legend.is_empty() {
        let items: String =
            legend.iter().map(|e| format!("<li>{}{}</li>", swatch_svg(e), formulas(&e.name))).collect();
        let _ = write!(out, r#"<ul class="legend">{items}</ul>"#);
    }
    out.push_str(r#"<div class="panels">"#);
    match figure.panels.as_slice() {
        // A single panel takes the full width.
        [panel] => out.push_str(&panel_html(&FigurePanel { shape: PanelShape::Wide, ..panel.clone() })),
        panels => out.extend(panels.iter().map(panel_html)),
    }
    out.push_str("</div>");
    out
}

fn panel_html(panel: &FigurePanel) -> String {
    let mut out =
        format!(r#"<figure class="panel{}">"#, if panel.shape == PanelShape::Wide { " wide" } else { "" });
    out.push_str(&panel_svg(panel, false).replacen("<svg ", r#"<svg class="full" "#, 1));
    if panel.shape == PanelShape::Wide {
        out.push_str(&panel_svg(panel, true).replacen("<svg ", r#"<svg class="narrow" "#, 1));
    }
    if matches!(panel.content, PanelContent::Xy(_))
        && let Some(json) = hover_json(panel)
    {
        let _ = write!(out, r#"<script type="application/json">{json}</script>"#);
    }
    out.push_str("</figure>");
    out
}

fn reproduce(runs: &[RunData]) -> String {
    let mut lines = Vec::new();
    for run in runs {
        let size = run.size.as_ref().map_or_else(String::new, |s| format!(" --size {s}"));
        let seed = run.seed.map_or_else(String::new, |s| format!(" --set seed={s}"));
        if let Some(method) = run.method {
            lines.push(format!("# {}\nsgs run {}{size}{seed}", run.name, method.as_str()));
        }
    }
    lines.push(
        "# exactly: save config.toml as shown below, without its table [frozen]\nsgs run config.toml"
            .to_owned(),
    );
    lines.join("\n\n")
}

fn configurations(drawn: &[PlottedRun<'_>], reproduce: &str) -> String {
    let mut out = format!(r#"<pre class="command">{}</pre>"#, escape(reproduce));
    for d in drawn {
        let _ = write!(
            out,
            r#"<details><summary>config.toml{}</summary><pre>{}</pre></details>"#,
            if drawn.len() > 1 { format!(" of {}", escape(&d.label)) } else { String::new() },
            escape(&d.run.config)
        );
    }
    out
}

/// Renders the navigation.
pub(crate) fn navigation(fragment: &Fragment) -> String {
    let mut before = "";
    let mut links = String::new();
    for part in fragment.parts.iter().filter(|part| !part.name.is_empty()) {
        // Adjacent sections with the same short name, for several runs, share a link to the first one.
        if std::mem::replace(&mut before, short(part)) != short(part) {
            let (id, name) = (&part.id, escape(&part.name));
            let _ = write!(links, "<a href=\"#{id}\" title=\"{name}\">{}</a>", escape(short(part)));
        }
    }
    links
}

/// Returns a section's short name for the navigation.
fn short(part: &PageSection) -> &str {
    const SHORT: [(&str, &str); 21] = [
        ("cumulative-solve-rate", "Solve rate"),
        ("held-out", "Held out"),
        ("fit-sensitivity", "Law"),
        ("hard-targets", "Hard targets"),
        ("wall-time", "Wall time"),
        ("training-dynamics", "Training"),
        ("pass-at-k", "pass@k"),
        ("novelty", "Novelty"),
        ("guide", "Guide"),
        ("conjecture-quality", "Conjectures"),
        ("conjecture-examples", "Examples"),
        ("solve-proximity", "Proximity"),
        ("solved-examples", "Solved"),
        ("entropy", "Entropy"),
        ("baseline-entropy", "Baselines' entropy"),
        ("verdicts", "Verdicts"),
        ("health", "Health"),
        ("timings", "Time"),
        ("data-set", "Data"),
        ("configuration", "Config"),
        ("ablations", "Ablations"),
    ];
    // Sections of single runs end in the number of the run.
    let id = part.id.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
    SHORT.iter().find(|(name, _)| *name == id).map_or(&part.name, |(_, short)| short)
}

/// Renders a complete page. `live` has the additional markup (before the content) and script of a live page.
pub fn page(fragment: &Fragment, live: Option<(&str, &str)>) -> String {
    let (before, script) = live.unwrap_or_default();
    format!(
        concat!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">",
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; ",
            "script-src 'unsafe-inline'; img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'\">",
            "<meta name=\"referrer\" content=\"no-referrer\"><link rel=\"icon\" href=\"data:,\">",
            "<title>{title} · sgs</title><style>:root{{{light}}}{dark_rules}{classes}{style}</style></head><body>",
            "<div class=\"bar\"><a class=\"brand\" href=\"#top\">sgs</a><nav id=\"nav\">{nav}</nav>",
            "<button id=\"theme\" type=\"button\" title=\"Light or dark\" aria-label=\"Light or dark\">◐</button></div>",
            "<div id=\"top\"></div>{before}<main id=\"main\">{main}</main>",
            "<div id=\"tip\" role=\"status\" hidden></div><script>{script_text}{extra}</script></body></html>\n"
        ),
        connect = if live.is_some() { "'self'" } else { "'none'" },
        title = escape(&fragment.title),
        light = theme::variables(false),
        dark_rules = dark_rules(),
        classes = theme::class_rules(),
        style = STYLE,
        nav = navigation(fragment),
        before = before,
        main = fragment.parts.iter().map(PageSection::html).collect::<String>(),
        script_text = SCRIPT,
        extra = script,
    )
}

fn dark_rules() -> String {
    let dark = theme::variables(true);
    format!(
        "@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}{EXTRA}}}}}@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}{EXTRA}}}}}",
        EXTRA = "--raised:#1e2126;--line:#2d3137;--code:#1b1e23;--accent:#4aa8e0;--warn:#3a2f14;--warn-line:#6b5520;"
    )
}
