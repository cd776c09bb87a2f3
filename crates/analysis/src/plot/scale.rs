//! Scales of axes: the mapping to pixels, ticks, and number formats.

/// Number format of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Plain numbers.
    Plain,
    /// Fractions, shown as percentages.
    Percent,
    /// Counts, shown like 20k or 1.5M if they are large.
    Count,
    /// Durations in seconds, shown as s, min, h or d.
    Duration,
}

/// A linear mapping from `low..=high` to pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Value at the pixel `from`.
    pub low: f64,
    /// Value at the pixel `to`.
    pub high: f64,
    /// Pixel position of `low`.
    pub from: f64,
    /// Pixel position of `high`.
    pub to: f64,
}

impl Scale {
    /// Returns the pixel position of a value. It is not finite if the scale cannot represent the value.
    pub fn pixel(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    /// Returns about `count` round numbers within the scale.
    pub fn ticks(&self, count: usize) -> Vec<f64> {
        self.multiples(nice_step((self.high - self.low) / count.max(1) as f64))
    }

    /// Returns the ticks with their labels. All labels have the unit of the upper end, and durations have steps as on clocks.
    pub fn labelled_ticks(&self, count: usize, unit: Unit) -> Vec<(f64, String)> {
        let label = |value: f64| (value, format_value(value, unit, 3));
        if unit == Unit::Count {
            let (size, suffix) = count_unit(self.high);
            let text = |t: f64| {
                if t == 0.0 { "0".to_owned() } else { format!("{}{suffix}", significant(t / size, 4)) }
            };
            return self.ticks(count).into_iter().map(|t| (t, text(t))).collect();
        }
        if unit != Unit::Duration {
            return self.ticks(count).into_iter().map(label).collect();
        }
        let (seconds, suffix) = duration_unit(self.high);
        let scaled = Scale { low: self.low / seconds, high: self.high / seconds, ..*self };
        let text = |t: f64| format!("{} {suffix}", significant(t, 4));
        let step = time_step((scaled.high - scaled.low) / count.max(1) as f64, suffix);
        scaled.multiples(step).into_iter().map(|t| (t * seconds, text(t))).collect()
    }

    fn multiples(&self, step: f64) -> Vec<f64> {
        if !(step.is_finite() && step > 0.0) {
            return Vec::new();
        }
        let first = (self.low / step - 1e-9).ceil() as i64;
        let last = (self.high / step + 1e-9).floor() as i64;
        (first..=last.min(first + 100)).map(|i| i as f64 * step).collect()
    }
}

/// Returns the smallest of 1, 2, 2.5 or 5 times a power of ten that is at least `raw`.
fn nice_step(raw: f64) -> f64 {
    let power = 10_f64.powf(raw.log10().floor());
    let multiple = raw / power;
    let nice = [1.0, 2.0, 2.5, 5.0].into_iter().find(|m| *m >= multiple - 1e-9).unwrap_or(10.0);
    nice * power
}

/// Returns the smallest step of at least `raw` that is usual on clocks.
fn time_step(raw: f64, suffix: &str) -> f64 {
    let steps: &[f64] = match suffix {
        "s" | "min" => &[0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0],
        "h" => &[0.5, 1.0, 2.0, 3.0, 6.0, 12.0, 24.0],
        _ => &[],
    };
    steps.iter().copied().find(|s| *s >= raw - 1e-9).unwrap_or_else(|| nice_step(raw))
}

/// Returns the ends of an axis for values from `low` to `high`, widened to round numbers. The range is never empty.
pub(super) fn nice_range(low: f64, high: f64, fixed: (Option<f64>, Option<f64>)) -> (f64, f64) {
    // An axis that would start close to zero starts at zero.
    let low = if low > 0.0 && low < 0.5 * high { 0.0 } else { low };
    let (mut low, mut high) = (fixed.0.unwrap_or(low), fixed.1.unwrap_or(high));
    if !(low.is_finite() && high.is_finite()) {
        (low, high) = (fixed.0.unwrap_or(0.0), fixed.1.unwrap_or(1.0));
    }
    if high <= low {
        let pad = if low == 0.0 { 1.0 } else { low.abs() * 0.1 };
        match fixed {
            (_, None) => high = low + pad,
            (None, _) => low = high - pad,
            _ => high = low + pad,
        }
        if fixed.0.is_none() && low != 0.0 {
            low -= pad;
        }
    }
    let step = nice_step((high - low) / 5.0);
    if fixed.0.is_none() {
        low = (low / step + 1e-9).floor() * step;
    }
    if fixed.1.is_none() {
        high = (high / step - 1e-9).ceil() * step;
    }
    (low, high)
}

/// Formats a count with a comma between groups of three digits.
pub fn grouped(count: f64) -> String {
    let digits = format!("{:.0}", count.abs());
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().filter_map(|g| std::str::from_utf8(g).ok()).collect();
    let sign = if count < 0.0 { "−" } else { "" };
    format!("{sign}{}", groups.join(","))
}

/// Formats a fraction as a percentage with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1}%", 100.0 * share)
}

/// Formats a value for axes, tooltips and tables, with `digits` significant digits.
pub fn format_value(value: f64, unit: Unit, digits: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    match unit {
        Unit::Plain => significant(value, digits),
        Unit::Percent => format!("{}%", significant(100.0 * value, digits)),
        Unit::Count => {
            let (size, suffix) = count_unit(value);
            let scaled = value / size;
            format!("{}{suffix}", significant(scaled, digits.max(if suffix.is_empty() { 4 } else { 0 })))
        }
        Unit::Duration => {
            let (seconds, suffix) = duration_unit(value);
            let scaled = value / seconds;
            format!("{} {suffix}", significant(scaled, digits))
        }
    }
}

/// Returns the unit of a count: its size and its suffix.
fn count_unit(value: f64) -> (f64, &'static str) {
    match value.abs() {
        v if v >= 1e9 => (1e9, "G"),
        v if v >= 1e6 => (1e6, "M"),
        v if v >= 1e4 => (1e3, "k"),
        _ => (1.0, ""),
    }
}

/// Returns the unit of a duration: its length in seconds and its suffix.
fn duration_unit(seconds: f64) -> (f64, &'static str) {
    match seconds.abs() {
        v if v >= 2.0 * 86400.0 => (86400.0, "d"),
        v if v >= 2.0 * 3600.0 => (3600.0, "h"),
        v if v >= 120.0 => (60.0, "min"),
        v if v >= 1.0 || v == 0.0 => (1.0, "s"),
        _ => (1e-3, "ms"),
    }
}

/// Formats a number with `digits` significant digits and without trailing zeros.
fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let magnitude = value.abs().log10().floor() as i32;
    if !(-5..=9).contains(&magnitude) {
        let text = format!("{value:.*e}", digits.saturating_sub(1));
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let mantissa = if mantissa.contains('.') {
            mantissa.trim_end_matches('0').trim_end_matches('.')
        } else {
            mantissa
        };
        return format!("{mantissa}e{exponent}").replace('-', "−");
    }
    let decimals = (digits as i32 - 1 - magnitude).max(0) as usize;
    let text = format!("{value:.decimals$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.replace('-', "−") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn counts_have_commas_between_groups_of_digits() {
        for (count, shown) in [(0.0, "0"), (999.0, "999"), (25_848.0, "25,848"), (-1_234_567.0, "−1,234,567")]
        {
            assert_eq!(grouped(count), shown);
        }
    }

    #[test]
    fn ticks_are_round_and_within() {
        let scale = Scale { low: 0.0, high: 0.67, from: 0.0, to: 100.0 };
        let ticks: Vec<String> = scale.ticks(5).into_iter().map(|t| format!("{t:.2}")).collect();
        assert_eq!(ticks, ["0.00", "0.20", "0.40", "0.60"]);
    }

    #[test]
    fn the_counts_of_an_axis_have_one_unit() {
        let scale = Scale { low: 0.0, high: 12_000.0, from: 0.0, to: 100.0 };
        let texts: Vec<String> = scale.labelled_ticks(3, Unit::Count).into_iter().map(|t| t.1).collect();
        assert_eq!(texts, ["0", "5k", "10k"]);
    }

    #[test]
    fn durations_have_ticks_as_on_clocks() {
        let texts = |high: f64, count: usize| -> Vec<String> {
            let scale = Scale { low: 0.0, high, from: 0.0, to: 100.0 };
            scale.labelled_ticks(count, Unit::Duration).into_iter().map(|(_, text)| text).collect()
        };
        assert_eq!(texts(590.0, 5), ["0 min", "2 min", "4 min", "6 min", "8 min"]);
        assert_eq!(texts(4.0 * 3600.0, 5), ["0 h", "1 h", "2 h", "3 h", "4 h"]);
        assert_eq!(texts(60.0, 4), ["0 s", "15 s", "30 s", "45 s", "60 s"]);
        assert_eq!(texts(0.004, 4), ["0 ms", "1 ms", "2 ms", "3 ms", "4 ms"]);
    }

    #[test]
    fn an_axis_that_would_start_close_to_zero_starts_at_zero() {
        assert_eq!(nice_range(0.05, 0.27, (None, None)).0, 0.0);
        assert!(nice_range(0.21, 0.27, (None, None)).0 > 0.15);
        assert!(nice_range(-0.05, 0.27, (None, None)).0 <= -0.05);
    }

    #[test]
    fn values_are_formatted() {
        let cases = [
            (0.671, Unit::Percent, "67.1%"),
            (6_300_000.0, Unit::Count, "6.3M"),
            (1600.0, Unit::Count, "1600"),
            (40_000.0, Unit::Count, "40k"),
            (90.0, Unit::Duration, "90 s"),
            (7300.0, Unit::Duration, "2.03 h"),
            (-1.5, Unit::Plain, "−1.5"),
            (0.0, Unit::Plain, "0"),
            (3e-6, Unit::Plain, "3e−6"),
            (1.25e12, Unit::Plain, "1.25e12"),
            (f64::NAN, Unit::Percent, "–"),
        ];
        for (value, unit, expected) in cases {
            assert_eq!(format_value(value, unit, 3), expected);
        }
    }

    proptest! {
        #[test]
        fn any_range_gives_an_axis(a in -1e12..1e12_f64, b in -1e12..1e12_f64) {
            let (low, high) = nice_range(a.min(b), a.max(b), (None, None));
            prop_assert!(low < high && low <= a.min(b) && high >= a.max(b), "{low} {high}");
            let scale = Scale { low, high, from: 0.0, to: 300.0 };
            let ticks = scale.ticks(6);
            prop_assert!(ticks.len() >= 2 && ticks.len() <= 12, "{ticks:?}");
        }

        #[test]
        fn no_number_breaks_formatting(value in prop::num::f64::ANY, digits in 0usize..8) {
            for unit in [Unit::Plain, Unit::Percent, Unit::Count, Unit::Duration] {
                prop_assert!(!format_value(value, unit, digits).is_empty());
            }
        }
    }

    #[test]
    fn empty_and_infinite_ranges_give_an_axis() {
        for (low, high) in [(f64::INFINITY, f64::NEG_INFINITY), (0.0, 0.0), (5.0, 5.0), (f64::NAN, 1.0)] {
            let (a, b) = nice_range(low, high, (None, None));
            assert!(a < b && a.is_finite() && b.is_finite(), "{low} {high} -> {a} {b}");
        }
    }
}
