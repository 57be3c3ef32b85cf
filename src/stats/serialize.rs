//! The statistics as `serde` serializes them (feature `serde`): each figure under its field's name.
//!
//! The implementations are written by hand, like those of the settings, so that no derive macro has
//! to be compiled. The pattern for each type has no `..`, so that a new field cannot be left out.

use serde::ser::{Serialize, SerializeStruct, Serializer};

use super::{RefusalCounts, ShutdownReport, Stats, WorkerSnapshot};

/// Implements `Serialize` for a struct. The given fields must be all that it has.
macro_rules! serialize_fields {
    ($type:ident: $($field:ident)+) => {
        /// A map from the fields' names to their values.
        #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
        impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                let Self { $($field),+ } = self;
                let fields = [$(stringify!($field)),+].len();
                let mut map = serializer.serialize_struct(stringify!($type), fields)?;
                $(map.serialize_field(stringify!($field), $field)?;)+
                map.end()
            }
        }
    };
}

serialize_fields! { Stats:
    accepted refused completed panicked expired discarded timed_out refusals
    abandoned waiting longest_running oldest_queued queued running
    workers idle peak_workers spawned retired spawn_failures hook_panics
}
serialize_fields! { RefusalCounts:
    saturated closed cancelled spawn_failed on_worker forked expired group_full
}
serialize_fields! { WorkerSnapshot: slot busy label abandoned abandoned_for running_for tasks }
serialize_fields! { ShutdownReport: discarded stragglers }
