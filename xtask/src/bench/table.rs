//! The result for people: a bar for each way of each CLI, made to scale, and what had to be cleared. Pure.

use super::finding::Finding;
use super::ways::{Measured, Took, Way};

/// The longest bar.
const WIDTH: f64 = 40.0;

/// Bars of first tokens. Each CLI has its own scale: the slowest of its ways is the whole width.
pub(crate) fn bars(all: &[Measured]) -> String {
    let mut text = String::new();
    for measured in all {
        text += &format!("{}, n = {}\n", measured.title(), measured.rounds());
        let by_hand = measured.of(Way::Bare).first.median();
        let longest = Way::ALL.iter().map(|way| measured.of(*way).first.median()).fold(0.0, f64::max);
        for way in Way::ALL {
            let took = measured.of(way);
            let first = took.first.median();
            let bar = "▇".repeat(((first / longest * WIDTH).round() as usize).max(1));
            let times = if way == Way::Bare { String::new() } else { format!("  {}", times(by_hand / first)) };
            text += &format!("  {:<12} {bar} {}{times}\n", way.name(), spread(took));
        }
        text.push('\n');
    }
    text
}

/// The same as a table: medians, and where eight in ten are; first token and all of it.
pub(crate) fn markdown(all: &[Measured]) -> String {
    let heads = Way::ALL.map(Way::name).join(" | ");
    let mut text = format!("| | n | | {heads} |\n|---|---|---|---|---|---|---|\n");
    for measured in all {
        let by_hand = measured.of(Way::Bare).first.median();
        let first = Way::ALL.map(|way| {
            let took = measured.of(way);
            let earlier = times(by_hand / took.first.median());
            let earlier = if way == Way::Bare { String::new() } else { format!(" **{earlier}**") };
            format!("{}{earlier}", spread(took))
        });
        let total = Way::ALL.map(|way| seconds(measured.of(way).total.median()));
        text += &format!("| {} | {} | first token | {} |\n", measured.title(), measured.rounds(), first.join(" | "));
        text += &format!("| | | in all | {} |\n", total.join(" | "));
    }
    text
}

/// What had to be cleared, and what was.
pub(crate) fn verdicts(findings: &[Finding]) -> String {
    let width = |cell: fn(&Finding) -> String| findings.iter().map(|it| cell(it).chars().count()).max().unwrap_or(0);
    let (what, value, range) = (width(|it| it.what.clone()), width(Finding::value), width(Finding::range));
    let line = |it: &Finding| {
        let line = format!(
            "{} {:<what$}  {:>value$}  {:<range$}  {}",
            it.mark(),
            it.what,
            it.value(),
            it.range(),
            it.wanted()
        );
        format!("{}\n", line.trim_end())
    };
    findings.iter().map(line).collect()
}

pub(crate) fn verdicts_markdown(findings: &[Finding]) -> String {
    let mut text = String::from("| | | | | bar |\n|---|---|---|---|---|\n");
    for it in findings {
        text +=
            &format!("| {} | {} | {} | {} | {} |\n", it.mark().trim(), it.what, it.value(), it.range(), it.wanted());
    }
    text
}

fn spread(took: &Took) -> String {
    let [low, middle, high] = [0.1, 0.5, 0.9].map(|quantile| took.first.quantile(quantile));
    format!("{} ({}–{})", seconds(middle), digits(low, middle), digits(high, middle))
}

pub(crate) fn times(ratio: f64) -> String {
    if ratio < 9.95 { format!("{ratio:.1}×") } else { format!("{ratio:.0}×") }
}

pub(crate) fn seconds(seconds: f64) -> String {
    let unit = if seconds < 0.0995 { "ms" } else { "s" };
    format!("{} {unit}", digits(seconds, seconds))
}

/// A time in the unit that suits `like`.
fn digits(seconds: f64, like: f64) -> String {
    if like >= 0.0995 {
        format!("{seconds:.2}")
    } else if like >= 0.00995 {
        format!("{:.0}", seconds * 1e3)
    } else {
        format!("{:.2}", seconds * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::ways::tests::measured;

    #[test]
    fn bars_are_to_scale() {
        let shown = bars(&[measured("claude", 0.25, 0.05)]);
        let lines: Vec<&str> = shown.lines().collect();
        assert_eq!(lines[0], "claude 1.0, n = 20");
        let lengths: Vec<usize> = lines[1..5].iter().map(|line| line.matches('▇').count()).collect();
        assert_eq!(lengths, [40, 40, 10, 2]);
        assert_eq!(lines[3], format!("  warm         {} 0.25 s (0.25–0.25)  4.0×", "▇".repeat(10)));
        assert!(lines[4].ends_with("50 ms (50–50)  20×"), "{}", lines[4]);
    }

    #[test]
    fn a_table_and_its_verdicts() {
        let all = [measured("claude", 0.25, 0.2)];
        assert_eq!(
            markdown(&all),
            "| | n | | by hand | cold | warm | in a session |\n|---|---|---|---|---|---|---|\n\
             | claude 1.0 | 20 | first token | 1.00 s (1.00–1.00) | 1.00 s (1.00–1.00) **1.0×** | 0.25 s (0.25–0.25) **4.0×** | 0.20 s (0.20–0.20) **5.0×** |\n\
             | | | in all | 1.50 s | 1.50 s | 0.38 s | 0.30 s |\n"
        );
        let shown = verdicts(&all[0].findings());
        assert_eq!(
            shown.lines().next(),
            Some("✓ claude: first token of a first turn, earlier by   4.0×  4.0–4.0    ≥ 3.5×")
        );
        assert!(verdicts_markdown(&all[0].findings()).contains("| ✗ | claude: first token in a session, earlier by |"));
    }
}
