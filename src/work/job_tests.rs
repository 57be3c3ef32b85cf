//! Tests of tasks.

use super::*;

fn round_trip<const N: usize>() {
    let bytes: [u8; N] = std::array::from_fn(|i| i as u8);
    let f = move || assert!(bytes.iter().enumerate().all(|(i, &b)| b == i as u8));
    assert_eq!(size_of_val(&f), N);
    back(f)();

    fn back<F: FnOnce() + Send + 'static>(f: F) -> F {
        let task = Task::new(Moment::default(), (), f);
        // SAFETY: the task was made from a closure of this type.
        unsafe { task.into_parts::<(), F>() }.1
    }
}

#[test]
fn jobs_of_every_size_come_back_whole() {
    round_trip::<0>();
    round_trip::<1>();
    round_trip::<47>();
    round_trip::<48>();
    round_trip::<49>();
    round_trip::<1000>();
}

#[test]
fn what_fits_is_not_boxed() {
    #[repr(align(16))]
    struct Wide(u8);
    fn fits<F: FnOnce() + Send + 'static>(_: &F) -> bool {
        Contents::<(), F>::FITS
    }
    const ROOM: usize = INLINE - size_of::<Moment>();
    let (full, over) = ([0_u8; ROOM], [0_u8; ROOM + 1]);
    let wide = Wide(0);
    assert!(fits(&|| ()));
    assert!(fits(&move || assert_ne!(full[0], 1)));
    assert!(!fits(&move || assert_ne!(over[0], 1)));
    let wide = move || {
        let whole = &wide;
        assert_eq!(whole.0, 0);
    };
    assert!(!fits(&wide), "alignment above 8");
}

#[test]
fn metrics_take_8_bytes() {
    let taken = 8 * usize::from(cfg!(feature = "metrics"));
    assert_eq!(size_of::<Contents<(), ()>>(), taken);
}
