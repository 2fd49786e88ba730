//! Plain text tables and numbers that a person can compare by eye.

/// Lays out rows of cells; the first row is the heading, the last three columns are numbers.
///
/// A cell that repeats the one above in the first two columns is left blank.
pub(super) fn render<const N: usize>(rows: &[[String; N]]) -> String {
    let mut widths = [0; N];
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    let mut above: Option<&[String; N]> = None;
    for row in rows {
        let repeats = above.is_some_and(|above| above[..2.min(N)] == row[..2.min(N)]);
        let mut line = String::new();
        for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
            let cell = if repeats && column < 2 { "" } else { cell };
            if column + 3 >= N {
                line.push_str(&format!("  {cell:>width$}"));
            } else {
                line.push_str(&format!("  {cell:<width$}"));
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
        above = Some(row);
    }
    text
}

/// A number with `decimals` places and thousands separated by commas.
pub(super) fn number(value: f64, decimals: usize) -> String {
    let text = format!("{value:.decimals$}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = match digits.split_once('.') {
        Some((whole, _)) => digits.split_at(whole.len()),
        None => (digits, ""),
    };
    let mut grouped = String::from(sign);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + fraction
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_thousands() {
        assert_eq!(number(1_234_567.891, 2), "1,234,567.89");
        assert_eq!(number(-1234.0, 0), "-1,234");
        assert_eq!(number(999.4, 0), "999");
        assert_eq!(number(0.0, 3), "0.000");
    }

    #[test]
    fn aligns_and_blanks_repetitions() {
        let row = |cells: [&str; 5]| cells.map(str::to_owned);
        let text = render(&[row(["f", "u", "1", "22", "–"]), row(["f", "u", "333", "4", "5"])]);
        assert_eq!(text, "  f  u    1  22  –\n        333   4  5\n");
    }
}
