//! The settings of the service, and the file that they come from.

use lazypool::{PoolSettings, WhenFull};
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// The settings that a file may have. `service.toml` explains each key.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// The address at which the service listens.
    pub listen: SocketAddr,
    /// The longest time that a request may take.
    #[serde(with = "humantime_serde")]
    pub deadline: Duration,
    /// How long requests are still answered, with 503, after SIGTERM.
    #[serde(with = "humantime_serde")]
    pub linger: Duration,
    /// How long running tasks may take to finish after SIGTERM.
    #[serde(with = "humantime_serde")]
    pub discard_timeout: Duration,
    /// How long running tasks may take after that to notice that they are cancelled.
    #[serde(with = "humantime_serde")]
    pub cancel_timeout: Duration,
    /// The settings of the pool.
    pub pool: PoolSettings,
}

impl Default for Settings {
    fn default() -> Self {
        let mut pool = PoolSettings::default();
        pool.queue_capacity = 256;
        pool.track_ages = true;
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            deadline: Duration::from_secs(2),
            linger: Duration::from_millis(500),
            discard_timeout: Duration::from_secs(5),
            cancel_timeout: Duration::from_secs(2),
            pool,
        }
    }
}

impl Settings {
    /// Reads a settings file.
    ///
    /// # Errors
    /// Returns a text for a person that names the file, the place and the key.
    pub fn load(path: &Path) -> Result<Self, String> {
        let shown = path.display();
        let text = std::fs::read_to_string(path).map_err(|e| format!("{shown}: {e}"))?;
        Self::parse(&text).map_err(|e| format!("{shown}: {e}"))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let settings: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        if settings.pool.when_full != WhenFull::Refuse {
            // With another policy `serve` would wait for room on a thread of the runtime.
            return Err(String::from(
                "pool.when_full: a service must refuse what it has no room for: \"refuse\"",
            ));
        }
        Ok(settings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_that_comes_with_the_service_is_valid() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("service.toml");
        let settings = Settings::load(&path).unwrap();
        assert_eq!(settings.pool.max_workers, 8);
        assert!(settings.pool.track_ages, "the dashboard shows them");
        let defaults = Settings::default();
        assert_eq!(settings.listen, defaults.listen);
        assert_eq!(settings.deadline, defaults.deadline);
        assert_eq!(settings.linger, defaults.linger);
        assert_eq!(settings.discard_timeout, defaults.discard_timeout);
        assert_eq!(settings.cancel_timeout, defaults.cancel_timeout);
    }
}
