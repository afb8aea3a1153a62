//! The bar chart of `docs/BENCHMARKS.md`: time to the first token of each CLI. It embeds no font and follows the reader's
//! light or dark colour scheme. Pure functions.

use super::table::{seconds, times};
use super::variants::{BenchVariant, CliTimes};

const WIDTH: f64 = 760.0;
/// Left edge of the bars.
const LEFT: f64 = 150.0;
/// Length of the longest bar.
const LONGEST: f64 = 440.0;
const BAR: f64 = 18.0;
const GAP: f64 = 4.0;
const BETWEEN: f64 = 18.0;
const TOP: f64 = 44.0;

const STYLE: &str = "text{font-family:sans-serif;font-size:13px;fill:#24292f}.name{font-weight:600}.quiet{fill:#656d76}\
    .bare{fill:#8c959f}.cold{fill:#6ea8d8}.warm{fill:#1f7a4d}.live{fill:#45b97c}\
    @media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9aa4ae}.bare{fill:#6e7681}.cold{fill:#4a86b8}\
    .warm{fill:#2ea36b}.live{fill:#7fd9a8}}";

/// Draws a group of bars for each CLI. Each group has its own scale: its slowest variant is the longest bar.
pub(crate) fn plot(all: &[CliTimes]) -> String {
    let block = BenchVariant::ALL.len() as f64 * (BAR + GAP) + BETWEEN;
    let height = TOP + block * all.len() as f64;
    let mut body = text(LEFT, 22.0, "", "First token, earlier is better. Medians; each CLI on its own scale.");
    for (index, measured) in all.iter().enumerate() {
        body += &group(measured, TOP + block * index as f64);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         role=\"img\" aria-label=\"First token of each CLI: by hand, cold, warm, in a session\">\n<style>{STYLE}</style>\n{body}</svg>\n"
    )
}

fn group(measured: &CliTimes, top: f64) -> String {
    let by_hand = measured.of(BenchVariant::Bare).first.median();
    let longest = BenchVariant::ALL.iter().map(|variant| measured.of(*variant).first.median()).fold(0.0, f64::max);
    let mut body = text(0.0, top + 14.0, "name", &measured.name);
    body += &text(0.0, top + 32.0, "quiet", &format!("{} n = {}", measured.version, measured.rounds()));
    for (row, variant) in BenchVariant::ALL.into_iter().enumerate() {
        let y = top + row as f64 * (BAR + GAP);
        let first = measured.of(variant).first.median();
        let length = (first / longest * LONGEST).max(1.0);
        let class = class(variant);
        body += &format!(
            "<rect class=\"{class}\" x=\"{LEFT}\" y=\"{y:.0}\" width=\"{length:.1}\" height=\"{BAR}\" rx=\"2\"/>\n"
        );
        let speed_up =
            if variant == BenchVariant::Bare { String::new() } else { format!(", {}", times(by_hand / first)) };
        let label = format!("{} {}{speed_up}", variant.name(), seconds(first));
        body += &text(LEFT + length + 6.0, y + 14.0, "", &label);
    }
    body
}

fn class(variant: BenchVariant) -> &'static str {
    match variant {
        BenchVariant::Bare => "bare",
        BenchVariant::Cold => "cold",
        BenchVariant::Warm => "warm",
        BenchVariant::Live => "live",
    }
}

fn text(x: f64, y: f64, class: &str, content: &str) -> String {
    let content = content.replace('&', "&amp;").replace('<', "&lt;");
    let class = if class.is_empty() { String::new() } else { format!(" class=\"{class}\"") };
    format!("<text{class} x=\"{x:.1}\" y=\"{y:.1}\">{content}</text>\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::variants::tests::measured;

    #[test]
    fn bars_are_to_scale_and_have_labels() {
        let drawn = plot(&[measured("claude", 0.25, 0.05), measured("a<b", 0.5, 0.5)]);
        let widths: Vec<&str> = drawn
            .lines()
            .filter(|line| line.starts_with("<rect"))
            .filter_map(|line| line.split("width=\"").nth(1)?.split('"').next())
            .collect();
        assert_eq!(widths, ["440.0", "440.0", "110.0", "22.0", "440.0", "440.0", "220.0", "220.0"]);
        assert!(drawn.contains(">warm 0.25 s, 4.0×</text>") && drawn.contains(">a&lt;b</text>"), "{drawn}");
        assert!(drawn.contains("prefers-color-scheme:dark") && !drawn.contains("url("), "{drawn}");
        assert_eq!(drawn.matches('<').count(), drawn.matches('>').count());
    }
}
