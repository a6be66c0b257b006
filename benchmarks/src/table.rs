//! Rows, and the table as Markdown.

use std::fmt;

use crate::figures::Spread;

/// One line of the table.
#[derive(Clone, Debug)]
pub struct Row {
    what: String,
    unit: Unit,
    ours: Spread,
    reference: Option<Reference>,
    aim: Option<Aim>,
}

#[derive(Clone, Debug)]
struct Reference {
    name: String,
    figures: Spread,
    ratio: Spread,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// So many times a second.
    PerSecond,
    /// Microseconds.
    Micros,
    /// Milliseconds.
    Millis,
    /// Nanoseconds.
    Nanos,
    /// Bytes.
    Bytes,
    /// Percent of one processor.
    Processor,
    /// Just a number.
    Count,
}

/// What a row's ratio should be; its own figure, where there is no reference.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Aim {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

impl Row {
    /// A row without a reference.
    ///
    /// # Panics
    ///
    /// When there are no figures.
    #[must_use]
    pub fn alone(what: impl Into<String>, unit: Unit, figures: &[f64]) -> Self {
        Self {
            what: what.into(),
            unit,
            ours: Spread::of(figures.iter().copied()),
            reference: None,
            aim: None,
        }
    }

    /// A row that compares figures with those of a reference, round by round.
    ///
    /// # Panics
    ///
    /// When there are no figures.
    #[must_use]
    pub fn compared(
        what: impl Into<String>,
        unit: Unit,
        ours: &[f64],
        reference: impl Into<String>,
        theirs: &[f64],
    ) -> Self {
        let reference = Reference {
            name: reference.into(),
            figures: Spread::of(theirs.iter().copied()),
            ratio: Spread::of_ratios(ours, theirs),
        };
        Self {
            reference: Some(reference),
            ..Self::alone(what, unit, ours)
        }
    }

    /// The same row with an aim.
    #[must_use]
    pub fn aiming(self, aim: Aim) -> Self {
        Self {
            aim: Some(aim),
            ..self
        }
    }

    fn is_met(&self) -> Option<bool> {
        let figure = self
            .reference
            .as_ref()
            .map_or(self.ours, |reference| reference.ratio);
        Some(match self.aim? {
            Aim::AtLeast(bound) => figure.median >= bound,
            Aim::AtMost(bound) => figure.median <= bound,
        })
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            unit,
            ours,
            reference,
            aim,
        } = self;
        write!(f, "| {what} | {} | ", unit.spread(*ours))?;
        match reference {
            Some(Reference { name, figures, ratio }) => {
                write!(f, "{name}: {} | ", unit.spread(*figures))?;
                write!(
                    f,
                    "**{:.2}** ({:.2}..{:.2}) | ",
                    ratio.median, ratio.min, ratio.max
                )?;
            }
            None => write!(f, "- | - | ")?,
        }
        let bound = |bound: &f64| match reference {
            Some(_) => format!("{bound}"),
            None => unit.value(*bound),
        };
        match aim {
            Some(Aim::AtLeast(least)) => write!(f, "at least {}", bound(least))?,
            Some(Aim::AtMost(most)) => write!(f, "at most {}", bound(most))?,
            None => write!(f, "-")?,
        }
        f.write_str(match self.is_met() {
            Some(true) => ": yes |",
            Some(false) => ": **no** |",
            None => " |",
        })
    }
}

impl Unit {
    fn spread(self, figures: Spread) -> String {
        let Spread { median, min, max } = figures;
        if min.total_cmp(&max).is_eq() {
            return self.value(median);
        }
        format!(
            "{} ({}..{})",
            self.value(median),
            self.value(min),
            self.value(max)
        )
    }

    fn value(self, figure: f64) -> String {
        match self {
            Self::PerSecond if figure >= 10_000.0 => format!("{:.1} k/s", figure / 1e3),
            Self::PerSecond => format!("{figure:.0}/s"),
            Self::Micros if figure >= 10_000.0 => format!("{:.1} ms", figure / 1e3),
            Self::Micros => format!("{figure:.1} µs"),
            Self::Millis => format!("{figure:.0} ms"),
            Self::Nanos => format!("{figure:.0} ns"),
            Self::Bytes => format!("{figure:.0} B"),
            Self::Processor => format!("{figure:.1} %"),
            Self::Count => format!("{figure:.1}"),
        }
    }
}

/// Heads the rows.
pub const HEAD: &str = "| what | monolock | reference | ratio | aim |\n| --- | --- | --- | --- | --- |";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_judges_the_median_of_its_ratios() {
        let row = Row::compared("claims", Unit::PerSecond, &[9.0, 8.0, 9.5], "bare", &[10.0; 3]);
        assert_eq!(
            row.aiming(Aim::AtLeast(0.9)).to_string(),
            "| claims | 9/s (8/s..10/s) | bare: 10/s | **0.90** (0.80..0.95) | at least 0.9: yes |"
        );
    }

    #[test]
    fn a_row_without_a_reference_judges_its_own_figure() {
        let row = Row::alone("memory", Unit::Bytes, &[3_000.0]);
        assert_eq!(
            row.clone().aiming(Aim::AtMost(2_048.0)).to_string(),
            "| memory | 3000 B | - | - | at most 2048 B: **no** |"
        );
        assert_eq!(row.to_string(), "| memory | 3000 B | - | - | - |");
    }
}
