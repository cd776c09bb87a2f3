//! Measured curves of the base models: the cumulative solve rate of sampling without training.

use crate::stats::{Interval, measured_at};
use sgs_selfplay::Method;
use toml::{Table, Value};

/// The curves that the program contains. `scripts/base-curves.sh` measures them; docs/analysis.md describes the file.
const MEASURED: &str = include_str!("../base-curves.csv");

/// The measured curve of a base model: one curve for each seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Baseline {
    /// The configuration keys that the curve depends on, with their values.
    settings: Table,
    /// For each seed, the generations at which the rate rose, with the new rate.
    seeds: Vec<(u64, Vec<(f64, f64)>)>,
}

impl Baseline {
    /// Returns the curve that was measured with a run's problems, base model and way of sampling, or `None` if there is
    /// none or the run itself only samples. `config` is the run's configuration as TOML.
    #[allow(clippy::expect_used, reason = "a test parses the curves")]
    pub fn of(config: &str, method: Option<Method>) -> Option<Self> {
        let config: Table = config.parse().ok().filter(|_| method != Some(Method::SamplingOnly))?;
        let measured = Self::parse(MEASURED).expect("invariant: the measured curves are valid");
        measured.into_iter().find(|baseline| holds(&config, &baseline.settings))
    }

    /// Parses curves that follow each other in one text.
    ///
    /// # Errors
    /// Returns an error that names the line if a setting is not TOML or a row is not `seed,generations,rate` with ascending
    /// generations.
    pub fn parse(text: &str) -> Result<Vec<Self>, String> {
        let mut all: Vec<Self> = Vec::new();
        let mut in_head = false;
        for (line, number) in text.lines().zip(1..) {
            let wrong = |what: &str| format!("line {number}: {what}: {line}");
            if let Some(comment) = line.strip_prefix('#') {
                if !std::mem::replace(&mut in_head, true) {
                    all.push(Self { settings: Table::new(), seeds: Vec::new() });
                }
                let Some(last) = all.last_mut().filter(|_| comment.contains(" = ")) else { continue };
                merge(&mut last.settings, comment.parse().map_err(|_| wrong("not a setting in TOML"))?);
            } else if line != "seed,generations,rate" {
                in_head = false;
                let last = all.last_mut().ok_or_else(|| wrong("no settings before this row"))?;
                last.enter(line)
                    .ok_or_else(|| wrong("expected seed,generations,rate with ascending generations"))?;
            }
        }
        Ok(all)
    }

    /// Adds a row. Returns `None` if it is not valid.
    fn enter(&mut self, row: &str) -> Option<()> {
        let (seed, point) = row.split_once(',')?;
        let (generations, rate) = point.split_once(',')?;
        let (seed, point): (u64, (f64, f64)) =
            (seed.parse().ok()?, (generations.parse().ok()?, rate.parse().ok()?));
        if !(0.0..=1.0).contains(&point.1) {
            return None;
        }
        match self.seeds.last_mut().filter(|(last, _)| *last == seed) {
            Some((_, curve)) if curve.last().is_some_and(|last| last.0 < point.0) => curve.push(point),
            Some(_) => return None,
            None => self.seeds.push((seed, vec![point])),
        }
        Some(())
    }

    /// Returns the number of seeds.
    pub fn seeds(&self) -> usize {
        self.seeds.len()
    }

    /// Returns the generations from which all seeds are measured.
    pub fn start(&self) -> f64 {
        self.seeds.iter().filter_map(|(_, curve)| Some(curve.first()?.0)).fold(0.0, f64::max)
    }

    /// Returns the generations at which the shortest curve ends.
    fn end(&self) -> f64 {
        self.seeds.iter().filter_map(|(_, curve)| Some(curve.last()?.0)).fold(f64::INFINITY, f64::min)
    }

    /// Returns the mean, lowest and highest rate over the seeds, or `None` outside the measured range.
    fn at(&self, generations: f64) -> Option<Interval> {
        let rates: Vec<f64> =
            self.seeds.iter().filter_map(|(_, curve)| measured_at(curve, generations)).collect();
        (rates.len() == self.seeds.len() && !rates.is_empty() && generations <= self.end()).then(|| {
            Interval {
                value: rates.iter().sum::<f64>() / rates.len() as f64,
                low: rates.iter().copied().fold(f64::INFINITY, f64::min),
                high: rates.iter().copied().fold(0.0, f64::max),
            }
        })
    }

    /// Compares a curve at its end, or at the end of this one if that is earlier. Returns the generations, the rate of the
    /// curve, and the base model's.
    pub fn against(&self, curve: &[(f64, f64)]) -> Option<(f64, f64, Interval)> {
        let end = curve.last()?.0.min(self.end());
        Some((end, measured_at(curve, end)?, self.at(end)?))
    }

    /// Returns the curve up to a number of generations: the generations with their rates.
    pub(crate) fn curve(&self, until: f64) -> Vec<(f64, Interval)> {
        let rises = self.seeds.iter().flat_map(|(_, curve)| curve.iter().map(|point| point.0));
        let mut at: Vec<f64> = rises.chain([until.min(self.end())]).filter(|x| *x <= until).collect();
        at.sort_by(f64::total_cmp);
        at.dedup();
        at.into_iter().filter_map(|x| Some((x, self.at(x)?))).collect()
    }
}

/// Adds the keys of `new`, at all levels.
fn merge(table: &mut Table, new: Table) {
    for (key, value) in new {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(new)) => merge(inner, new),
            (_, value) => drop(table.insert(key, value)),
        }
    }
}

/// Returns whether a configuration has all these settings.
fn holds(config: &Table, settings: &Table) -> bool {
    settings.iter().all(|(key, value)| match (config.get(key), value) {
        (Some(Value::Table(inner)), Value::Table(value)) => holds(inner, value),
        (found, value) => found == Some(value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "# A curve.\n# problems.set = \"quick\"\n# problems.k = 8\nseed,generations,rate\n1,100,0.1\n\
                       1,300,0.2\n2,100,0.2\n2,200,0.4\n# B\n# problems.set = \"all\"\n1,5,0.5\n";

    #[test]
    fn a_curve_has_a_mean_and_a_range_where_all_seeds_are_measured() {
        let all = Baseline::parse(TWO).unwrap();
        let first = &all[0];
        assert_eq!((all.len(), first.seeds(), first.start(), first.end()), (2, 2, 100.0, 200.0));
        let [_, early, end, late] = [99.0, 100.0, 200.0, 201.0].map(|x| first.at(x));
        assert_eq!(early, Some(Interval { value: (0.1 + 0.2) / 2.0, low: 0.1, high: 0.2 }));
        assert_eq!((end.map(|i| (i.low, i.high)), late), (Some((0.1, 0.4)), None));
        assert_eq!(first.at(99.0), None);
        let run = [(50.0, 0.0), (150.0, 0.3), (400.0, 0.6)];
        assert_eq!(first.against(&run).map(|(x, own, base)| (x, own, base.value)), Some((200.0, 0.3, 0.25)));
        assert_eq!(first.against(&[]), None);
        let drawn: Vec<f64> = first.curve(150.0).iter().map(|(x, _)| *x).collect();
        assert_eq!(drawn, [100.0, 150.0]);
    }

    #[test]
    fn a_curve_belongs_to_runs_with_the_same_settings() {
        let settings = &Baseline::parse(TWO).unwrap()[0].settings;
        let fits = |config: &str| holds(&config.parse().unwrap(), settings);
        assert!(fits("seed = 2\n[problems]\nset = \"quick\"\nk = 8\nother = 1\n"));
        assert!(
            !fits("[problems]\nset = \"all\"\nk = 8\n")
                && !fits("[problems]\nset = \"quick\"\n")
                && !fits("")
        );
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line) in [
            ("1,2,0.5\n", "line 1: no settings"),
            ("# a = \n", "line 1: not a setting"),
            ("# a = 1\n1,2\n", "line 2: expected seed"),
            ("# a = 1\n1,2,1.5\n", "line 2: expected seed"),
            ("# a = 1\n1,2,0.5\n1,2,0.6\n", "line 3: expected seed"),
        ] {
            let error = Baseline::parse(text).unwrap_err();
            assert!(error.starts_with(line), "{error}");
        }
    }

    #[test]
    fn the_measured_curves_are_valid() {
        for baseline in Baseline::parse(MEASURED).unwrap() {
            assert!(
                baseline.seeds() >= 5 && baseline.settings.contains_key("problems"),
                "{:?}",
                baseline.settings
            );
        }
    }
}
