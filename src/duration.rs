//! Durations in the notation of the crate's settings: `250ms`, `10s`, `1m 30s`, `never`.
//!
//! Settings files and the word `block:<duration>` use the same grammar. There is no unit for months
//! or years, because they have no fixed length.

use std::fmt;
use std::time::Duration;

/// The word for [`Duration::MAX`].
const NEVER: &str = "never";

const NANOS_PER_SEC: u128 = 1_000_000_000;

/// The units from the largest to the smallest. Each has its length in nanoseconds and all its
/// names. The first name is the one that [`Text`] writes.
const UNITS: &[(u128, &[&str])] = &[
    (86_400 * NANOS_PER_SEC, &["d", "day", "days"]),
    (3_600 * NANOS_PER_SEC, &["h", "hour", "hours"]),
    (
        60 * NANOS_PER_SEC,
        &["m", "min", "mins", "minute", "minutes"],
    ),
    (NANOS_PER_SEC, &["s", "sec", "secs", "second", "seconds"]),
    (1_000_000, &["ms", "msec"]),
    // The last two begin with the micro sign and the Greek letter mu, which look alike.
    (1_000, &["us", "usec", "\u{b5}s", "\u{3bc}s"]),
    (1, &["ns", "nsec"]),
];

/// The reason why a text is not a duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    Empty,
    NoNumber,
    Word,
    NoUnit,
    UnknownUnit,
    TooLong,
    Zero,
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "it is empty",
            Self::NoNumber => "each unit needs a whole number before it",
            Self::Word => "it has no number; for no limit write \"never\"",
            Self::NoUnit => "a number needs a unit: ns, us, ms, s, m, h or d",
            Self::UnknownUnit => "the units are ns, us, ms, s, m, h and d",
            Self::TooLong => "it is too long; the longest is \"never\"",
            Self::Zero => "a wait of zero is no wait: \"refuse\"",
        })
    }
}

/// Parses a duration. The text is `never`, or one or more whole numbers with units, which are added
/// up.
pub(crate) fn parse(text: &str) -> Result<Duration, Invalid> {
    let mut rest = text.trim();
    if rest.is_empty() {
        return Err(Invalid::Empty);
    }
    if rest == NEVER {
        return Ok(Duration::MAX);
    }
    // Some users write such a word to mean "no limit": "forever", "infinite", "Never".
    if rest.chars().all(char::is_alphabetic) {
        return Err(Invalid::Word);
    }
    let mut nanos = 0_u128;
    while !rest.is_empty() {
        let (number, after) = split_where(rest, |c| !c.is_ascii_digit());
        let (unit, after) = split_where(after.trim_start(), |c| !c.is_alphabetic());
        if number.is_empty() {
            return Err(Invalid::NoNumber);
        }
        if unit.is_empty() {
            // If another character follows the number, as in "1.5s", the number is not whole.
            return Err(if after.is_empty() {
                Invalid::NoUnit
            } else {
                Invalid::NoNumber
            });
        }
        let &(of_unit, _) = (UNITS.iter())
            .find(|(_, names)| names.contains(&unit))
            .ok_or(Invalid::UnknownUnit)?;
        // The number has digits only, so this fails only if it is too large.
        let number: u64 = number.parse().map_err(|_| Invalid::TooLong)?;
        nanos = (u128::from(number) * of_unit)
            .checked_add(nanos)
            .ok_or(Invalid::TooLong)?;
        rest = after.trim_start();
    }
    let secs = u64::try_from(nanos / NANOS_PER_SEC).map_err(|_| Invalid::TooLong)?;
    // The remainder is less than a second in nanoseconds, so it fits.
    Ok(Duration::new(secs, (nanos % NANOS_PER_SEC) as u32))
}

/// Splits a text before the first character for which `ends` returns `true`.
fn split_where(text: &str, ends: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(ends).unwrap_or(text.len()))
}

/// Writes a duration in the notation that [`parse`] reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text(pub(crate) Duration);

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Duration::MAX => return f.write_str(NEVER),
            Duration::ZERO => return f.write_str("0s"),
            _ => {}
        }
        let mut nanos = self.0.as_nanos();
        let mut gap = "";
        for (of_unit, names) in UNITS {
            let number = nanos / of_unit;
            if number > 0 {
                write!(f, "{gap}{number}{}", names[0])?;
                gap = " ";
            }
            nanos %= of_unit;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_add_up() {
        for (text, expected) in [
            ("0s", Duration::ZERO),
            ("7ns", Duration::from_nanos(7)),
            ("5us", Duration::from_micros(5)),
            ("5\u{b5}s", Duration::from_micros(5)),
            ("250ms", Duration::from_millis(250)),
            (" 250 ms ", Duration::from_millis(250)),
            ("10s", Duration::from_secs(10)),
            ("1m 30s", Duration::from_secs(90)),
            ("1m30s", Duration::from_secs(90)),
            ("30s 1m", Duration::from_secs(90)),
            ("2 hours 1 min 1 sec", Duration::from_secs(7261)),
            ("1d", Duration::from_secs(86_400)),
            ("never", Duration::MAX),
            ("18446744073709551615s", Duration::from_secs(u64::MAX)),
        ] {
            assert_eq!(parse(text), Ok(expected), "{text:?}");
        }
    }

    #[test]
    fn everything_else_is_invalid_for_a_reason() {
        for (text, expected) in [
            ("", Invalid::Empty),
            ("  ", Invalid::Empty),
            ("-1s", Invalid::NoNumber),
            ("1s, 2s", Invalid::NoNumber),
            ("1.5s", Invalid::NoNumber),
            ("ms", Invalid::Word),
            ("Never", Invalid::Word),
            ("forever", Invalid::Word),
            ("infinite", Invalid::Word),
            ("10", Invalid::NoUnit),
            ("1s 5", Invalid::NoUnit),
            ("5 parsecs", Invalid::UnknownUnit),
            ("1S", Invalid::UnknownUnit),
            ("1y", Invalid::UnknownUnit),
            ("18446744073709551616s", Invalid::TooLong),
            ("18446744073709551615s 1s", Invalid::TooLong),
            ("18446744073709551615d", Invalid::TooLong),
        ] {
            assert_eq!(parse(text), Err(expected), "{text:?}");
            assert!(!expected.to_string().is_empty());
        }
        assert!(Invalid::Word.to_string().contains("\"never\""));
    }

    #[test]
    fn what_is_written_can_be_read() {
        for (duration, text) in [
            (Duration::ZERO, "0s"),
            (Duration::MAX, "never"),
            (Duration::from_millis(250), "250ms"),
            (Duration::from_millis(1_500), "1s 500ms"),
            (Duration::from_secs(90), "1m 30s"),
            (Duration::new(93_784, 5_006_007), "1d 2h 3m 4s 5ms 6us 7ns"),
        ] {
            assert_eq!(Text(duration).to_string(), text);
            assert_eq!(parse(text), Ok(duration));
        }
        let longest = Duration::MAX - Duration::from_nanos(1);
        assert_eq!(parse(&Text(longest).to_string()), Ok(longest));
    }
}
