//! What the environment says, the connection, and errors that tell a mistake from an outage.

use sqlx::{
    Connection, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{collections::BTreeMap, env, fmt, time::Duration};

/// How long one attempt to reach the database may take.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Why a command did not work. An outage passes by itself; the settings do not.
#[derive(Debug)]
pub enum Error {
    /// The settings are wrong: another attempt fails, too.
    Settings(String),
    /// The database does not answer, or refused a statement.
    Outage(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Settings(what) => write!(f, "settings: {what}"),
            Error::Outage(what) => write!(f, "the database: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        // A wrong user or password, no such database, not permitted, only readable.
        const SETTINGS: [&str; 7] = [
            "28000", "28P01", "3D000", "3F000", "42P01", "42501", "25006",
        ];
        let code = error.as_database_error().and_then(|error| error.code());
        match (&error, code) {
            (sqlx::Error::Configuration(what), _) => {
                Error::Settings(format!("DATABASE_URL: {what}"))
            }
            (_, Some(code)) if *code == *"42P01" => {
                Error::Settings(format!("{error}: run `jobs setup` first"))
            }
            (_, Some(code)) if SETTINGS.contains(&&*code) => Error::Settings(error.to_string()),
            _ => Error::Outage(error.to_string()),
        }
    }
}

/// The settings of all commands. The README has a table with the reasons.
#[derive(Clone, Debug)]
pub struct Settings {
    /// `DATABASE_URL`.
    pub url: String,
    /// `JOBS_WORKERS`: jobs that run at once in a process.
    pub workers: usize,
    /// `JOBS_DEADLINE_S`: the longest that a job may take.
    pub deadline: Duration,
    /// `JOBS_ATTEMPTS`: how often a job is tried.
    pub attempts: i16,
    /// `JOBS_HEARTBEAT_S`: how often a process says that it lives.
    pub heartbeat: Duration,
    /// `JOBS_DEAD_S`: after this silence the other processes take its jobs.
    pub dead: Duration,
    /// `JOBS_GRACE_S`: how long running jobs may go on after SIGTERM.
    pub grace: Duration,
    /// `JOBS_HUNG_S`: how long half of the workers may hang before the process ends to be replaced.
    pub hung: u32,
    /// `JOBS_METRICS`: where Prometheus reads, such as `127.0.0.1:9464`.
    pub metrics: Option<std::net::SocketAddr>,
}

impl Settings {
    /// Reads the environment. Returns an error for a variable `JOBS_...` that does not exist, too.
    pub fn from_env() -> Result<Self, Error> {
        let vars = env::vars_os()
            .filter_map(|(k, v)| Some((k.into_string().ok()?, v.to_string_lossy().into())));
        Self::from_vars(vars).map_err(Error::Settings)
    }

    /// Reads these variables instead of the environment's.
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Result<Self, Error> {
        let vars = pairs
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        Self::from_vars(vars).map_err(Error::Settings)
    }

    fn from_vars(vars: impl Iterator<Item = (String, String)>) -> Result<Self, String> {
        let ours =
            |(name, _): &(String, String)| name.starts_with("JOBS_") || name == "DATABASE_URL";
        let mut vars: BTreeMap<_, _> = vars.filter(ours).collect();
        let url = vars.remove("DATABASE_URL").unwrap_or_default();
        if !["postgres://", "postgresql://"]
            .iter()
            .any(|scheme| url.starts_with(scheme))
        {
            return Err("DATABASE_URL must be set, to postgres://USER@HOST/DATABASE".into());
        }
        let metrics = vars.remove("JOBS_METRICS").map(|at| {
            at.parse()
                .map_err(|_| format!("JOBS_METRICS={at}: no HOST:PORT"))
        });
        let metrics = metrics.transpose()?;
        let mut number = |name: &str, default: u32, max: u32| match vars.remove(name) {
            None => Ok(default),
            Some(value) => match value.parse() {
                Ok(n) if (1..=max).contains(&n) => Ok(n),
                _ => Err(format!(
                    "{name}={value}: must be a whole number from 1 to {max}"
                )),
            },
        };
        let seconds = |n: u32| Duration::from_secs(n.into());
        let settings = Settings {
            url,
            workers: number("JOBS_WORKERS", 4, 1000)? as usize,
            deadline: seconds(number("JOBS_DEADLINE_S", 30, 86_400)?),
            attempts: number("JOBS_ATTEMPTS", 5, 100)? as i16,
            heartbeat: seconds(number("JOBS_HEARTBEAT_S", 10, 3600)?),
            dead: seconds(number("JOBS_DEAD_S", 60, 86_400)?),
            grace: seconds(number("JOBS_GRACE_S", 6, 3600)?),
            hung: number("JOBS_HUNG_S", 10, 3600)?,
            metrics,
        };
        if settings.heartbeat * 3 > settings.dead {
            return Err("JOBS_DEAD_S must be at least three times JOBS_HEARTBEAT_S".into());
        }
        match vars.into_keys().next() {
            Some(name) => Err(format!("{name}: there is no such setting")),
            None => Ok(settings),
        }
    }
}

/// Connects once, to learn what is wrong; returns connections that come back after an outage.
pub async fn open(settings: &Settings) -> Result<PgPool, Error> {
    let options: PgConnectOptions = settings.url.parse()?;
    let options = options.application_name("jobs");
    let look = async {
        let mut db = PgConnection::connect_with(&options).await?;
        let read_only = "SELECT current_setting('transaction_read_only') = 'on'";
        let read_only: bool = sqlx::query_scalar(read_only).fetch_one(&mut db).await?;
        db.close().await?;
        Ok::<_, Error>(read_only)
    };
    match tokio::time::timeout(PATIENCE, look).await {
        Err(_) => return Err(Error::Outage(format!("no answer within {PATIENCE:?}"))),
        Ok(Err(error)) => return Err(error),
        Ok(Ok(true)) => {
            return Err(Error::Settings(String::from(
                "DATABASE_URL: the database is read-only",
            )));
        }
        Ok(Ok(false)) => {}
    }
    // One for each job, the rest for the engine: its fetch, heartbeat, sweep and notifications.
    let pool = PgPoolOptions::new()
        .max_connections(u32::try_from(settings.workers).expect("at most 1000") + 5);
    Ok(pool.acquire_timeout(PATIENCE).connect_lazy_with(options))
}
