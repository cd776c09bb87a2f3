//! The page of a report.

use super::html::{Cell, Format, ReportTable, formulas};
use super::{examples, tables, verdict};
use crate::figures::{self, FigureOptions, PlottedRun};
use crate::plot::{
    Figure, FigurePanel, PanelContent, PanelShape, Unit, entries, escape, format_value, grouped, hover_json,
    panel_svg, percent, swatch_svg, theme,
};
use crate::run::{RunData, metric};
use sgs_rundir::metrics::names;
use std::fmt::Write;
use std::hash::{Hash, Hasher};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// Explanation of the scaling law (paper, eq. 6).
const LAW: &str = "Law of the cumulative solve rate R: R = R₀ + (A − R₀) / (1 + (C_mid / C)^B). The fit begins at C₀ \
     generations, with the rate R₀; C is the number of generations after C₀. A is the asymptote of the rate, C_mid the \
     value of C at which half of A − R₀ is reached, and B the steepness.";

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
    /// Whether only the title is visible until a reader opens the section.
    is_folded: bool,
    /// The content as markup.
    body: String,
    /// Paths of the files with the section's figures and tables, relative to the page.
    files: Vec<String>,
}

impl PageSection {
    /// Creates a section without a title, which is not in the navigation.
    pub(crate) fn untitled(id: &str, body: &str) -> Self {
        Self { id: id.to_owned(), body: body.to_owned(), ..Self::default() }
    }

    /// Renders the section as an HTML element, on request with links to its files.
    pub fn html(&self, has_files: bool) -> String {
        let (id, tag) = (&self.id, self.tag());
        let body = if has_files { self.body.clone() + &self.links() } else { self.body.clone() };
        let name = escape(&self.name);
        match (self.name.is_empty(), self.is_folded) {
            (true, _) => format!(r#"<div id="{id}" data-tag="{tag}">{body}</div>"#),
            (false, false) => {
                format!(
                    r#"<section id="{id}" data-tag="{tag}" aria-label="{name}"><h2>{name}</h2>{body}</section>"#
                )
            }
            (false, true) => format!(
                r#"<section id="{id}" data-tag="{tag}" aria-label="{name}" class="folded"><details><summary><h2>{name}</h2></summary>{body}</details></section>"#
            ),
        }
    }

    fn links(&self) -> String {
        let link = |path: &String| {
            let name = path.split_once('/').map_or(path.as_str(), |(_, name)| name);
            format!(r#"<a href="{path}">{name}</a>"#)
        };
        match self.files.as_slice() {
            [] => String::new(),
            files => format!(
                r#"<p class="files">Files: {}</p>"#,
                files.iter().map(link).collect::<Vec<_>>().join(" · ")
            ),
        }
    }

    /// Returns a hash of the content, by which an open page detects changes.
    pub fn tag(&self) -> String {
        let mut hasher = std::hash::DefaultHasher::new();
        (&self.name, &self.body).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    }
}

/// Assembles the sections of a page.
struct PageBuilder<'a> {
    drawn: &'a [PlottedRun<'a>],
    options: &'a FigureOptions,
    page: Fragment,
    /// The section in progress.
    open: PageSection,
}

/// Creates the content of a report on one or several runs.
pub fn fragment(runs: &[RunData], options: &FigureOptions) -> Fragment {
    let drawn = figures::draw(runs, options);
    let figures = figures::all(&drawn, options);
    let page = Fragment { title: title(runs), figures, ..Fragment::default() };
    let mut builder = PageBuilder { drawn: &drawn, options, page, open: PageSection::default() };
    builder.results(runs);
    builder.details();
    builder.text(&configurations(&drawn, &reproduce(runs)));
    builder.fold("configuration", "Configuration and reproduction");
    builder.page
}

impl PageBuilder<'_> {
    /// Adds markup to the section in progress.
    fn text(&mut self, markup: &str) {
        self.open.body.push_str(markup);
    }

    /// Adds a figure to the section in progress. Returns its title, or `None` if the runs lack its data.
    fn figure(&mut self, id: &str) -> Option<String> {
        let figure = self.page.figures.iter().find(|figure| figure.id == id)?;
        self.open.files.extend([format!("figures/{id}.svg"), format!("tables/{id}.csv")]);
        self.open.body.push_str(&figure_html(figure));
        Some(figure.title.clone())
    }

    /// Adds a table to the section in progress, if there is one.
    fn table(&mut self, name: &str, title: &str, table: Option<ReportTable>) {
        let Some(table) = table else { return };
        let heading = format!("<h3>{}</h3>", escape(title));
        let hidden = (self.drawn.len() == 1).then_some("Run");
        self.text(&(heading + &table.html(name, title, hidden)));
        self.open.files.push(format!("tables/{name}.csv"));
        self.page.tables.push((name.to_owned(), table));
    }

    /// Ends the section in progress, unless it is empty.
    fn section(&mut self, id: &str, name: &str) {
        let section = std::mem::take(&mut self.open);
        if !section.body.is_empty() {
            self.page.parts.push(PageSection { id: id.to_owned(), name: name.to_owned(), ..section });
        }
    }

    /// Ends the section in progress, which is folded.
    fn fold(&mut self, id: &str, name: &str) {
        self.open.is_folded = true;
        self.section(id, name);
    }

    fn figure_section(&mut self, id: &str, is_folded: bool) {
        let title = self.figure(id).unwrap_or_default();
        self.open.is_folded = is_folded;
        self.section(id, &title);
    }

    /// Adds the verdict, the solve rates and the targets.
    fn results(&mut self, runs: &[RunData]) {
        let drawn = self.drawn;
        let head = head(drawn, &self.page.title) + &notes(drawn);
        self.text(&head);
        self.section("head", "");
        if runs.iter().all(RunData::is_empty) {
            let text = "No round is finished yet. The first figures appear after one round, curves after two, and a scaling law after about ten.";
            self.text(&format!(r#"<p class="empty">{text}</p>"#));
            self.section("empty", "");
        }
        let is_comparison = drawn.len() > 1;
        if is_comparison {
            self.table("runs", "Final results", Some(tables::summary(drawn)));
            self.section("runs", "Runs");
        }
        self.figure_section("cumulative-solve-rate", false);
        let title = self.figure("held-out").unwrap_or_else(|| "pass@k".to_owned());
        self.table("pass-at-k", "pass@k before and after training", tables::pass_at(drawn));
        self.section("held-out", &title);
        for (i, d) in drawn.iter().enumerate() {
            let name = if is_comparison { format!("targets-{i}") } else { "targets".to_owned() };
            let title = named("Targets, unsolved ones first", drawn, d);
            self.table(&name, &title, tables::targets(d.run));
            if let Some(proofs) = examples::solved(d.run, i) {
                self.text(&format!("<h3>Proofs of solved targets, latest first</h3>{proofs}"));
            }
            self.open.is_folded = is_comparison;
            self.section(&format!("targets-{i}"), &named("Targets", drawn, d));
        }
    }

    /// Adds the folded sections.
    fn details(&mut self) {
        let drawn = self.drawn;
        let fits = tables::fits(drawn, self.options);
        self.text(&format!(r#"<p class="caption">{}</p>"#, formulas(LAW)));
        if fits.rows.iter().any(|row| row.contains(&Cell::from("yes"))) {
            self.table("scaling-laws", "Parameters", Some(fits));
        } else {
            self.open.files.push("tables/scaling-laws.csv".to_owned());
            self.page.tables.push(("scaling-laws".to_owned(), fits));
        }
        self.text(&tables::what_to_know(drawn));
        self.fold("scaling-laws", "Scaling laws");
        for (i, d) in drawn.iter().enumerate() {
            if let Some(list) = examples::conjectures(d.run, i) {
                self.text(&list);
                self.fold(&format!("conjecture-examples-{i}"), &named("Examples of conjectures", drawn, d));
            }
        }
        for id in ["training-dynamics", "conjecture-quality", "health"] {
            self.figure_section(id, true);
        }
        if let (Some(d), Some(title)) = (figures::main_run(drawn), self.figure("timings")) {
            let title = named(&title, drawn, d);
            self.table("timings-by-stage", &title, tables::timings(d));
            self.text(&speeds(d.run));
            self.fold("timings", &title);
        }
    }
}

/// Renders the mean numbers of tokens per second.
fn speeds(run: &RunData) -> String {
    let mean = |name: &str| {
        let values: Vec<f64> = run.by_round(name).iter().map(|p| p.1).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        (!values.is_empty()).then(|| format_value(mean.round(), Unit::Count, 4))
    };
    let kinds = [("sampled", names::SAMPLED_TOKENS_PER_S), ("trained", names::TRAINED_TOKENS_PER_S)];
    let known: Vec<String> =
        kinds.iter().filter_map(|(name, key)| Some(format!("{} {name}", mean(key)?))).collect();
    if known.is_empty() {
        return String::new();
    }
    format!(r#"<p class="caption">Tokens per second, mean over the rounds: {}.</p>"#, known.join(", "))
}

fn named(what: &str, drawn: &[PlottedRun<'_>], d: &PlottedRun<'_>) -> String {
    if drawn.len() > 1 { format!("{what}: {}", d.label) } else { what.to_owned() }
}

fn title(runs: &[RunData]) -> String {
    match runs {
        [] => "No run".to_owned(),
        [run] => run.name.clone(),
        many => format!("Comparison of {} runs", many.len()),
    }
}

/// Renders the title, the verdict and the most important numbers.
fn head(drawn: &[PlottedRun<'_>], title: &str) -> String {
    let (mut about, mut ended, mut tiles_of_run) = (Vec::new(), None, String::new());
    if let [d] = drawn {
        about.extend(d.run.method.map(|m| m.description().to_owned()));
        about.extend(d.run.seed.map(|s| format!("seed {s}")));
        about.extend(d.run.version.as_ref().map(|v| format!("sgs {v}")));
        ended = d.run.ended.as_ref();
        tiles_of_run = tiles(d);
    } else {
        about.extend(drawn.iter().map(|d| d.label.clone()));
    }
    let (title, about) = (escape(title), escape(&about.join(" · ")));
    let mut out = format!("<header class=\"head\"><h1>{title}</h1><p>{about}</p>");
    if let Some(verdict) = verdict::sentences(drawn) {
        let paragraphs = verdict.map(|text| format!("<p>{}</p>", escape(&text))).concat();
        let _ = write!(out, r#"<div class="verdict">{paragraphs}</div>"#);
    }
    if let Some(why) = ended {
        let _ = write!(out, "<p>The run has ended: {}.</p>", escape(why));
    }
    out + &tiles_of_run + "</header>"
}

fn tiles(d: &PlottedRun<'_>) -> String {
    let run = d.run;
    let mut tiles: Vec<(String, String)> = Vec::new();
    if let Some(rate) = run.last(metric::CUMULATIVE) {
        let of = run.last(metric::SOLVED_EVER).zip(run.last(metric::TARGETS));
        let of =
            of.map_or_else(String::new, |(solved, all)| format!(", {} of {}", grouped(solved), grouped(all)));
        tiles.push((percent(rate), format!("targets solved{of}")));
    }
    if let Some(last) = run.held_out().next_back()
        && let Some(rate) = last.held_out_pass_at(1)
    {
        let base = run.held_out().next().filter(|first| first.after == 0);
        let base = match base.and_then(|first| first.held_out_pass_at(1)) {
            _ if last.after == 0 => " of the base model".to_owned(),
            Some(base) => format!(" (base model {})", percent(base)),
            None => String::new(),
        };
        tiles.push((percent(rate), format!("held out, pass@1{base}")));
    }
    if let Some(generations) = run.last(metric::GENERATIONS) {
        tiles.push((
            Cell::number(Some(generations), Format::Count).text(),
            "generations (rollouts of the Solver)".to_owned(),
        ));
    }
    let rounds = run.rounds.len();
    tiles.push((
        rounds.to_string(),
        (if rounds == 1 { "round" } else { "rounds (numbered from 0)" }).to_owned(),
    ));
    if let Some(seconds) = tables::wall_time(run) {
        tiles.push((format_value(seconds, Unit::Duration, 3), "wall time of the rounds".to_owned()));
    }
    // Without a determined law, the section on scaling laws gives the reason.
    let asymptote = d.fit.as_ref().map(figures::describe).unwrap_or_default();
    tiles.extend(asymptote.split_once(" ± ").map(|(value, error)| {
        let name = format!(
            "asymptote of the fitted curve ± {error} (without the spread of seeds); not an upper limit"
        );
        (value.to_owned(), name)
    }));
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
        let items: String = legend
            .iter()
            .map(|e| format!("<li>{}<span>{}</span></li>", swatch_svg(e), formulas(&e.name)))
            .collect();
        let _ = write!(out, r#"<ul class="legend">{items}</ul>"#);
    }
    out.push_str(r#"<div class="panels">"#);
    match figure.panels.as_slice() {
        // A single panel takes the full width.
        [panel] => out
            .push_str(&panel_html(&FigurePanel { shape: PanelShape::Wide, ..panel.clone() }, &figure.title)),
        panels => out.extend(panels.iter().map(|panel| panel_html(panel, &figure.title))),
    }
    out.push_str("</div>");
    out
}

fn panel_html(panel: &FigurePanel, figure: &str) -> String {
    let label = if panel.title.is_empty() { figure } else { &panel.title };
    let mut out =
        format!(r#"<figure class="panel{}">"#, if panel.shape == PanelShape::Wide { " wide" } else { "" });
    out.push_str(&panel_svg(panel, label, false).replacen("<svg ", r#"<svg class="full" "#, 1));
    if panel.shape == PanelShape::Wide {
        out.push_str(&panel_svg(panel, label, true).replacen("<svg ", r#"<svg class="narrow" "#, 1));
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
        let seed = run.seed.map_or_else(String::new, |s| format!(" --seed {s}"));
        if let Some(method) = run.method {
            lines.push(format!(
                "# {}\nsgs run {}{size}{seed}{}",
                run.name,
                method.as_str(),
                same_rounds(run)
            ));
        }
    }
    let limits = runs.first().filter(|_| runs.len() == 1).map(same_rounds).unwrap_or_default();
    lines.push(format!(
        "# exactly: save config.toml as shown below, without its table [frozen]\nsgs run config.toml{limits}"
    ));
    lines.join("\n\n")
}

/// Returns the options for as many rounds as a run has had at its end: without a time limit, they are the same on any
/// machine. Before the end, returns its limits.
fn same_rounds(run: &RunData) -> String {
    let limit = |key: &str| run.limit(key).map_or_else(String::new, |limit| format!(" --{key} {limit}"));
    match run.ended {
        Some(_) => format!(" --rounds {} --minutes 0{}", run.rounds.len(), limit("generations")),
        None => ["rounds", "minutes", "generations"].map(limit).concat(),
    }
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
    const SHORT: [(&str, &str); 8] = [
        ("cumulative-solve-rate", "Solve rate"),
        ("targets", "Targets"),
        ("conjecture-examples", "Examples"),
        ("training-dynamics", "Training"),
        ("conjecture-quality", "Quality"),
        ("health", "Health"),
        ("timings", "Wall time"),
        ("configuration", "Configuration"),
    ];
    // Sections of single runs end in the number of the run.
    let id = part.id.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('-');
    SHORT.iter().find(|(name, _)| *name == id).map_or(&part.name, |(_, short)| short)
}

/// Renders a complete page. A live page has an additional script, and no links to files.
pub fn page(fragment: &Fragment, live_script: Option<&str>) -> String {
    format!(
        concat!(
            "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">",
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">",
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; ",
            "script-src 'unsafe-inline'; img-src data:; connect-src {connect}; base-uri 'none'; form-action 'none'\">",
            "<meta name=\"referrer\" content=\"no-referrer\"><link rel=\"icon\" href=\"data:,\">",
            "<title>{title} · sgs</title><style>:root{{{light}}}{dark_rules}{classes}{style}</style></head><body>",
            "<div class=\"bar\"><a class=\"brand\" href=\"#top\">sgs</a><nav id=\"nav\" aria-label=\"Sections\">{nav}</nav>",
            "<button id=\"theme\" type=\"button\" title=\"Light or dark\" aria-label=\"Light or dark\">◐</button></div>",
            "<div id=\"top\"></div><main id=\"main\">{main}</main>",
            "<div id=\"tip\" role=\"status\" hidden></div><script>{script_text}{extra}</script></body></html>\n"
        ),
        connect = if live_script.is_some() { "'self'" } else { "'none'" },
        title = escape(&fragment.title),
        light = theme::variables(false),
        dark_rules = dark_rules(),
        classes = theme::class_rules(),
        style = STYLE,
        nav = navigation(fragment),
        main = fragment.parts.iter().map(|part| part.html(live_script.is_none())).collect::<String>(),
        script_text = SCRIPT,
        extra = live_script.unwrap_or_default(),
    )
}

fn dark_rules() -> String {
    let dark = theme::variables(true);
    format!(
        "@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{color-scheme:dark;{dark}{EXTRA}}}}}@media screen{{:root[data-theme=dark]{{color-scheme:dark;{dark}{EXTRA}}}}}",
        EXTRA = "--raised:#1e2126;--line:#2d3137;--code:#1b1e23;--accent:#4aa8e0;--warn:#3a2f14;--warn-line:#6b5520;"
    )
}
