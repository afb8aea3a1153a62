//! Results as text: a bar for each variant of each CLI, and the figures with their thresholds. Pure functions.

use super::figure::BenchFigure;
use super::variants::{BenchVariant, CliTimes, VariantTimes};

/// Length of the longest bar, in characters.
const WIDTH: f64 = 40.0;

/// Bars of the time to the first token. Each CLI has its own scale: its slowest variant has the full width.
pub(crate) fn bars(all: &[CliTimes]) -> String {
    let mut text = String::new();
    for measured in all {
        text += &format!("{}, n = {}\n", measured.title(), measured.rounds());
        let by_hand = measured.of(BenchVariant::Bare).first.median();
        let longest = BenchVariant::ALL.iter().map(|variant| measured.of(*variant).first.median()).fold(0.0, f64::max);
        for variant in BenchVariant::ALL {
            let taken = measured.of(variant);
            let first = taken.first.median();
            let bar = "▇".repeat(((first / longest * WIDTH).round() as usize).max(1));
            let times =
                if variant == BenchVariant::Bare { String::new() } else { format!("  {}", times(by_hand / first)) };
            text += &format!("  {:<12} {bar} {}{times}\n", variant.name(), spread(taken));
        }
        text.push('\n');
    }
    text
}

/// The same as a table in Markdown: first token with its 10 % and 90 % quantiles, and the whole turn.
pub(crate) fn markdown(all: &[CliTimes]) -> String {
    let heads = BenchVariant::ALL.map(BenchVariant::name).join(" | ");
    let mut text = format!("| | n | | {heads} |\n|---|---|---|---|---|---|---|\n");
    for measured in all {
        let by_hand = measured.of(BenchVariant::Bare).first.median();
        let first = BenchVariant::ALL.map(|variant| {
            let taken = measured.of(variant);
            let speed_up = times(by_hand / taken.first.median());
            let speed_up = if variant == BenchVariant::Bare { String::new() } else { format!(" **{speed_up}**") };
            format!("{}{speed_up}", spread(taken))
        });
        let total = BenchVariant::ALL.map(|variant| seconds(measured.of(variant).total.median()));
        text += &format!("| {} | {} | first token | {} |\n", measured.title(), measured.rounds(), first.join(" | "));
        text += &format!("| | | whole turn | {} |\n", total.join(" | "));
    }
    text
}

/// The figures with their spreads and thresholds.
pub(crate) fn verdicts(figures: &[BenchFigure]) -> String {
    let width = |cell: fn(&BenchFigure) -> String| figures.iter().map(|it| cell(it).chars().count()).max().unwrap_or(0);
    let (what, value, range) = (width(|it| it.what.clone()), width(BenchFigure::value), width(BenchFigure::range));
    let line = |it: &BenchFigure| {
        let line = format!(
            "{} {:<what$}  {:>value$}  {:<range$}  {}",
            it.mark(),
            it.what,
            it.value(),
            it.range(),
            it.required()
        );
        format!("{}\n", line.trim_end())
    };
    figures.iter().map(line).collect()
}

pub(crate) fn verdicts_markdown(figures: &[BenchFigure]) -> String {
    let mut text = String::from("| | | | | threshold |\n|---|---|---|---|---|\n");
    for it in figures {
        text +=
            &format!("| {} | {} | {} | {} | {} |\n", it.mark().trim(), it.what, it.value(), it.range(), it.required());
    }
    text
}

fn spread(times: &VariantTimes) -> String {
    let [low, middle, high] = [0.1, 0.5, 0.9].map(|quantile| times.first.quantile(quantile));
    format!("{} ({}–{})", seconds(middle), digits(low, middle), digits(high, middle))
}

pub(crate) fn times(ratio: f64) -> String {
    if ratio < 9.95 { format!("{ratio:.1}×") } else { format!("{ratio:.0}×") }
}

pub(crate) fn seconds(seconds: f64) -> String {
    let unit = if seconds < 0.0995 { "ms" } else { "s" };
    format!("{} {unit}", digits(seconds, seconds))
}

/// Formats a time in the unit and precision that suit `like`.
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
    use crate::bench::variants::tests::measured;

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
    fn markdown_table_has_speed_ups_and_verdicts_have_thresholds() {
        let all = [measured("claude", 0.25, 0.2)];
        assert_eq!(
            markdown(&all),
            "| | n | | by hand | cold | warm | in a session |\n|---|---|---|---|---|---|---|\n\
             | claude 1.0 | 20 | first token | 1.00 s (1.00–1.00) | 1.00 s (1.00–1.00) **1.0×** | 0.25 s (0.25–0.25) **4.0×** | 0.20 s (0.20–0.20) **5.0×** |\n\
             | | | whole turn | 1.50 s | 1.50 s | 0.38 s | 0.30 s |\n"
        );
        let shown = verdicts(&all[0].figures());
        assert_eq!(
            shown.lines().next(),
            Some("✓ claude: first token of a first turn, speed-up   4.0×  4.0–4.0    ≥ 3.5×")
        );
        assert!(verdicts_markdown(&all[0].figures()).contains("| ✗ | claude: first token in a session, speed-up |"));
    }
}
