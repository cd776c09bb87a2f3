//! Formats an evaluation as one line.

use sgs_analysis::plot;
use sgs_rundir::MetricValues;
use sgs_rundir::metrics::names::HELD_OUT;

/// Formats an evaluation of held-out problems, next to the base model's. Returns `None` if it has no held-out problems.
pub fn line(metrics: &MetricValues, base: Option<&MetricValues>) -> Option<String> {
    let (problems, solved) = (of(metrics, "problems")?, of(metrics, "solved")?);
    let k = of(metrics, "samples")?;
    let most = format!("pass@{k:.0}");
    let mut out = format!("held out, {}:  {}", weights(metrics), percent("pass@1", metrics, base));
    if k > 1.0 {
        out.push_str(&format!("  {}", percent(&most, metrics, base)));
    }
    let seconds = of(metrics, "seconds").unwrap_or_default();
    out.push_str(&format!("  solved {solved:.0} of {problems:.0}  {seconds:.1} s"));
    Some(out)
}

/// Formats pass@1 of an evaluation, next to the base model's. Returns `None` if it has no held-out problems.
pub fn pass_at_1(metrics: &MetricValues, base: Option<&MetricValues>) -> Option<String> {
    of(metrics, "pass@1")?;
    Some(format!("{}, {}", percent("pass@1", metrics, base), weights(metrics)))
}

fn of(metrics: &MetricValues, name: &str) -> Option<f64> {
    metrics.scalars.get(&format!("{HELD_OUT}{name}")).copied()
}

/// Formats a rate, next to that of the base model.
fn percent(name: &str, metrics: &MetricValues, base: Option<&MetricValues>) -> String {
    let now = of(metrics, name).map_or("-%".to_owned(), plot::percent);
    let before = base.filter(|_| metrics.round > 0).and_then(|base| of(base, name));
    let before = before.map_or_else(String::new, |x| format!(" (base model {})", plot::percent(x)));
    format!("{name} {now}{before}")
}

/// Describes the weights that were evaluated.
fn weights(metrics: &MetricValues) -> String {
    match metrics.round {
        0 => "the base model".to_owned(),
        n => format!("after {}", crate::output::counted(n as usize, "round")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_compares_an_evaluation_with_the_base_model() {
        let evaluation = |after, pass: f64| {
            let mut metrics = MetricValues::of_evaluation(after);
            for (name, value) in
                [("problems", 50.0), ("samples", 8.0), ("solved", 6.0), ("pass@1", pass), ("pass@8", 0.12)]
            {
                metrics.set(format!("{HELD_OUT}{name}"), value);
            }
            metrics
        };
        let base = evaluation(0, 0.02);
        assert_eq!(
            line(&base, None).unwrap(),
            "held out, the base model:  pass@1 2.0%  pass@8 12.0%  solved 6 of 50  0.0 s"
        );
        assert_eq!(
            line(&evaluation(20, 0.031), Some(&base)).unwrap(),
            "held out, after 20 rounds:  pass@1 3.1% (base model 2.0%)  pass@8 12.0% (base model 12.0%)  \
             solved 6 of 50  0.0 s"
        );
        assert_eq!(line(&MetricValues::of_evaluation(0), None), None);
        assert_eq!(pass_at_1(&base, Some(&base)).unwrap(), "pass@1 2.0%, the base model");
        assert_eq!(
            pass_at_1(&evaluation(1, 0.031), Some(&base)).unwrap(),
            "pass@1 3.1% (base model 2.0%), after 1 round"
        );
        assert_eq!(pass_at_1(&MetricValues::of_evaluation(0), None), None);
    }
}
