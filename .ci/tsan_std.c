/*
 * Tells ThreadSanitizer what std's own code does between threads.
 *
 * std comes compiled without instrumentation. Most of a mutex is inlined into
 * our code and so is seen; what waits is not, and whatever a mutex protects
 * would be reported. The linker puts these in place of std's functions
 * (`--wrap`); the names, which are std's mangled ones, come from the build.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void __tsan_acquire(void *);
void __tsan_release(void *);

#define WRAPPED(symbol) __asm__("__wrap_" symbol)
#define REAL(symbol) __asm__("__real_" symbol)

/* Mutex::lock_contended(&self) */
void real_lock(void *) REAL(LOCK);
void wrapped_lock(void *) WRAPPED(LOCK);
void wrapped_lock(void *mutex)
{
	real_lock(mutex);
	__tsan_acquire(mutex);
}

/* Condvar::wait(&self, &Mutex): unlocks and locks again. */
void real_wait(void *, void *) REAL(WAIT);
void wrapped_wait(void *, void *) WRAPPED(WAIT);
void wrapped_wait(void *condvar, void *mutex)
{
	__tsan_release(mutex);
	real_wait(condvar, mutex);
	__tsan_acquire(mutex);
}

/* Condvar::wait_timeout(&self, &Mutex, Duration) -> bool */
bool real_wait_timeout(void *, void *, uint64_t, uint32_t) REAL(WAIT_TIMEOUT);
bool wrapped_wait_timeout(void *, void *, uint64_t, uint32_t) WRAPPED(WAIT_TIMEOUT);
bool wrapped_wait_timeout(void *condvar, void *mutex, uint64_t secs, uint32_t nanos)
{
	__tsan_release(mutex);
	bool woken = real_wait_timeout(condvar, mutex, secs, nanos);
	__tsan_acquire(mutex);
	return woken;
}

/*
 * ScopeData::decrement_num_running_threads(&self, bool): `thread::scope` waits
 * for the count, not for the threads. Which word is the count is std's affair.
 */
void real_scope_end(void *, bool) REAL(SCOPE_END);
void wrapped_scope_end(void *, bool) WRAPPED(SCOPE_END);
void wrapped_scope_end(void *scope, bool panicked)
{
	for (size_t word = 0; word < 3; word++)
		__tsan_release((char *)scope + word * sizeof(void *));
	real_scope_end(scope, panicked);
}

/*
 * An Arc gives up with a release, and its last owner follows with an acquire
 * fence, which the sanitizer does not understand: stronger here instead. Our
 * own subtractions are stronger anyway.
 */
uint64_t __real___tsan_atomic64_fetch_sub(volatile uint64_t *, uint64_t, int);
uint64_t __wrap___tsan_atomic64_fetch_sub(volatile uint64_t *, uint64_t, int);
uint64_t __wrap___tsan_atomic64_fetch_sub(volatile uint64_t *word, uint64_t by, int order)
{
	if (order == __ATOMIC_RELEASE)
		order = __ATOMIC_ACQ_REL;
	return __real___tsan_atomic64_fetch_sub(word, by, order);
}
