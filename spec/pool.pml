/*
 * Admission and waking, as an abstract specification. README.md says what it leaves out, how it
 * is run, and what it found.
 *
 * One step here is one access to a word that threads share, or several where the rest is read or
 * written by one thread only, or under a lock. All of it is sequentially consistent.
 */
#include "steps.pml"

/* ---- what is chosen by -D ------------------------------------------------------------- */
#ifndef W
#define W 2          /* slots: 1 to 3 */
#endif
#ifndef S
#define S 2          /* submitters: 1 to 3 */
#endif
#ifndef ROUNDS
#define ROUNDS 1     /* submissions of each */
#endif
#ifndef CAP
#define CAP 1        /* the queue: 0 to 2 tasks */
#endif
#ifndef FAILS
#define FAILS 0      /* how many threads the OS may refuse */
#endif
#ifndef RETIRES
#define RETIRES 0    /* how many times the cleaner sweeps */
#endif
#ifndef LIMITS
#define LIMITS 0     /* the limit: 1 is lowered to one worker, 2 and raised again */
#endif
#ifndef TIMED
#define TIMED 0      /* callers wait, and may take their task back: 1 some, 2 all */
#endif
#ifndef CANCELS
#define CANCELS 0    /* a group is canceled: 1; 2: no task but the group's and those whose callers wait */
#endif
#ifndef HOOKS
#define HOOKS 0      /* workers have a start and a stop hook: 1 */
#endif
#ifndef BLOCKS
#define BLOCKS 0     /* submitters wait for space: 1 */
#endif
#ifndef CLOSES
#define CLOSES 0     /* a shutdown: 1 drains, 2 discards */
#endif
#ifndef LIVE
#define LIVE 0       /* a worker loses its listing once at most, each time it goes idle: 1 */
#endif
#ifndef FAULT
#define FAULT 0      /* which fault is injected: `faults` in .ci/spec has them */
#endif
#if CAP > 0
#define CELLS CAP
#else
#define CELLS 1
#endif

/* ---- what threads share ----------------------------------------------------------------- */
byte st[W];          /* a slot's word: its state, */
bit listed[W]; bit parked[W]; bit hook[W];  /* its flags: `hook` is STARTING; */
byte mbox[W];        /* and its mailbox: the task, 0 for none */
bit token[W];        /* `unpark` */
bit begun[W];        /* its thread has been started */
bit ready[W];        /* the ready ring: which slots have an entry in it. In any order */
bit freed[W];        /* the free ring */
byte awake; byte notified; byte returning; byte benched;

byte head; byte tail; bit qclosed; bit asleep = 1;
byte cs[CELLS]; byte cp[CELLS]; byte ct[CELLS];  /* stamps: state and position; tasks */

bit lock;            /* the registry, and what it guards */
byte live; byte asked; byte retiring; byte limit = W;
byte bench[W]; bit withheld[W];
bit closed; bit over;  /* the pool's phase: `over` while more slots are to be withheld */
bit cancelled;       /* the group's flag */

bit onlist[S];       /* submitters that wait for space */
bit done[S];         /* a waiting caller's outcome */
byte fails = FAILS;
#if LIVE
bit lost[W];
#endif

/* ---- what only the oracles read --------------------------------------------------------- */
byte unended;        /* accepted, and neither ended nor taken back nor discarded */
byte finished;       /* all but workers and the cleaner that have returned */
bit sent[W];         /* `Held` by who will send it to the queue */
byte hand[W];        /* its entry of the ready ring is in the hands of a submission (1) or a notifier (2) */
bit taken[W];        /* its entry of the free ring is in the hands of a submission */
bit incall[S]; bit filled[S];   /* at some moment of the call all was busy, */
bit unseen[S];                  /* or no worker was idle */
bit watch[S]; byte seen[S];     /* what has moved since a submission began to look */
bit ofgroup[S];                 /* it submits a task of the group's, */
bit looked;                     /* whose cancel has been through the queue */
hidden byte hf; hidden byte ht;

#define C(p) ((p) % CELLS)
#define QEMPTY (CAP == 0 || head == tail)
#define AT_HEAD(state) (head != tail && cs[C(head)] == state && cp[C(head)] == head)

#define READY 1
#define FREED 2
#define POPS 4

/* A task: its submitter's number plus one; 8 more if its caller waits, and may take it back; 16
 * more if it is of the group. */
#define AWAITED(t) ((t) & 8)
#define GROUPED(t) ((t) & 16)
#define OWNER(t) (((t) & 7) - 1)

#if W == 1
#define EACH(X) X(0)
#define ALL(X) (X(0))
#define SUM(X) (X(0))
#elif W == 2
#define EACH(X) X(0) X(1)
#define ALL(X) (X(0) && X(1))
#define SUM(X) (X(0) + X(1))
#else
#define EACH(X) X(0) X(1) X(2)
#define ALL(X) (X(0) && X(1) && X(2))
#define SUM(X) (X(0) + X(1) + X(2))
#endif
#if S == 1
#define EVERY(X) X(0)
#define ANYS(X) (X(0))
#elif S == 2
#define EVERY(X) X(0) X(1)
#define ANYS(X) (X(0) || X(1))
#else
#define EVERY(X) X(0) X(1) X(2)
#define ANYS(X) (X(0) || X(1) || X(2))
#endif

/* ---- the oracles ------------------------------------------------------------------------ */

/* Refusals. A worker is busy that has a task, that a submission is just taking, that is being
 * started for a task, or that is in a hook. A slot that the limit withholds is no worker. */
#define BUSY(i) (st[i] == sBusy || st[i] == sOffered || hook[i] || (st[i] == sHeld && !sent[i]) || \
                 (st[i] == sIdle && hand[i] == 1) || (st[i] == sFree && (taken[i] || withheld[i])) || \
                 (HOOKS && (st[i] == sRetiring || (st[i] == sFree && !freed[i]))))
#define OLDEST_STAYS (CAP == 0 || (cs[C(head)] != cDead && cs[C(head)] != cHeld))
#define ALLBUSY (ALL(BUSY) && tail - head >= CAP && OLDEST_STAYS)
#define NOT_IDLE(i) (st[i] != sIdle || hand[i])
#define NOTE1(k) unseen[k] = (incall[k] && (unseen[k] || ALL(NOT_IDLE))); filled[k] = (incall[k] && (filled[k] || ALLBUSY));
#define NOTE EVERY(NOTE1)
#define TOUCHED hf
#define TOUCH1(k) seen[k] = (watch[k] -> (seen[k] | TOUCHED) : 0);
inline touch(b) { hf = b; EVERY(TOUCH1) }

/* The counts' invariants: who is out of sight is counted, but not in a hook. */
#define IS_SEARCHING(i) (st[i] == sSearching && !hook[i])
#define IS_RETIRING(i) (!HOOKS && st[i] == sRetiring)
#define IS_AWAY(i) (!HOOKS && st[i] == sFree && !freed[i] && !withheld[i] && !taken[i])
#define IS_BENCHED(i) (st[i] == sIdle && !listed[i])
#define CAN_BE_FOUND(i) (!IS_BENCHED(i) || bench[i] || lock)
#define FLAGS_FIT(i) (st[i] == sIdle -> !hook[i] : !parked[i])
#define COUNTED ( SUM(IS_SEARCHING) <= awake + notified \
  && SUM(IS_SEARCHING) + SUM(IS_RETIRING) <= awake + notified + returning \
  && SUM(IS_AWAY) <= returning + notified + lock && SUM(IS_BENCHED) <= benched && ALL(CAN_BE_FOUND) && ALL(FLAGS_FIT) )

/* The tables. */
c_decl {
  \#include <stdio.h>
  static char slot_met[8][8], cell_met[8][8];
};
c_code {
  static void meet(char met[8][8], const char *what, int from, int to) {
    if (!met[from][to]) { met[from][to] = 1; printf("met: %s %d %d\n", what, from, to); }
  }
};

inline slot_step(s, from, to) {
  assert(st[s] == from);
  assert(0 SLOT_STEPS);
  st[s] = to;
  NOTE
  assert(COUNTED);
  hf = from; ht = to;
  c_code { meet(slot_met, "slot", hf, ht); }
}

inline cell_step(c, from, to) {
  assert(cs[c] == from);
  assert(0 CELL_STEPS);
  cs[c] = to;
  if :: to == cEmpty -> cp[c] = cp[c] + CELLS :: else fi;
  NOTE
  hf = from; ht = to;
  c_code { meet(cell_met, "cell", hf, ht); }
}

inline accept() { unended++; assert(unended <= W + CAP) }

/* ---- who waits for space ---------------------------------------------------------------- */
#define WAITS(k) onlist[k]
#define OFF(k) :: onlist[k] -> onlist[k] = 0
#define NONE(k) onlist[k] = 0;
inline made_space() {
#if BLOCKS
  if :: ANYS(WAITS) -> atomic { if EVERY(OFF) :: else fi } :: else fi
#else
  skip
#endif
}
inline notify_all() { d_step { EVERY(NONE) } }

/* ---- the queue -------------------------------------------------------------------------- */
#define OK 1
#define NO_SPACE 2
#define SLEEPS 3
#define CLOSED 4
#define CANCELLED 5
#define NOT_NEEDED 6
#define NO_THREAD 7

inline skip_dead(h) {
  atomic { AT_HEAD(cDead) -> h = head; head++; touch(POPS); cell_step(C(h), cDead, cEmpty); h = 0 }
}

/* Of a full queue it skips what is dead first. */
inline push(t, p, r) {
  do
  :: atomic { qclosed -> r = CLOSED; break }
  :: atomic { !qclosed && asleep -> r = SLEEPS; break }
  :: atomic { !qclosed && !asleep && tail - head < CAP ->
       assert(cs[C(tail)] == cEmpty && cp[C(tail)] == tail); p = tail; tail++; accept(); NOTE; r = OK }
     atomic { ct[C(p)] = t; cell_step(C(p), cEmpty, cFull); break }
  :: atomic { !qclosed && !asleep && tail - head >= CAP && !AT_HEAD(cDead) -> r = NO_SPACE; break }
  :: !qclosed && !asleep && tail - head >= CAP && AT_HEAD(cDead) -> if :: skip_dead(p) :: else fi
  od
}

/* The oldest task, or 0. Waits for a thread between two steps at the oldest position, unless it
 * gives `once` only a look. */
inline pop(t, h, once) {
  t = 0;
  do
#if FAULT != 11
  :: atomic { AT_HEAD(cFull) -> h = head; cell_step(C(h), cFull, cHeld) }
     atomic { t = ct[C(h)]; ct[C(h)] = 0; head++; touch(POPS); cell_step(C(h), cHeld, cEmpty); break }
#else
  :: atomic { AT_HEAD(cFull) -> h = head; t = ct[C(h)] }
     atomic { head++; touch(POPS); ct[C(h)] = 0; cs[C(h)] = cEmpty; cp[C(h)] = cp[C(h)] + CELLS; break }
#endif
  :: skip_dead(h)
  :: atomic { QEMPTY -> break }
  :: atomic { once && !QEMPTY && !AT_HEAD(cFull) && !AT_HEAD(cDead) -> break }
  od;
  h = 0
}

/* ---- claims, and what becomes of them ---------------------------------------------------- */
#define CLAIM(i) wk = parked[i]; parked[i] = 0; sent[i] = !submits; slot_step(i, sIdle, sHeld)
#define POP_READY(k) :: atomic { ready[k] -> ready[k] = 0; i = k; hand[k] = 2 - submits; NOTE }
#define IN_READY(k) ready[k]
#define POP_BENCH(k) :: atomic { bench[k] -> bench[k] = bench[k] - 1; i = k }
#define IN_BENCH(k) bench[k]
#define FREE_ONE(k) :: atomic { freed[k] -> freed[k] = 0; i = k; taken[k] = (submits || HOOKS); NOTE }
#define IN_FREE(k) freed[k]
#define AFFINE(k) :: atomic { st[k] == sIdle && listed[k] -> i = k; CLAIM(k) }
#define AFFINE_AWAKE(k) :: atomic { st[k] == sIdle && listed[k] && !parked[k] -> i = k; CLAIM(k) }
#define NO_READY (SUM(IN_READY) == 0)
#define NO_FREE (SUM(IN_FREE) == 0)
#define SEARCHED (awake + notified > 0)
inline look_who_is_idle() { if :: !NO_READY -> idle = 1 :: else -> idle = (benched > 0 && FAULT != 14) fi }

/* Makes idle a slot that is the thread's own, so that it can be found. */
inline publish_idle(s, from) {
#if FAULT == 4
  atomic { st[s] = sIdle }
  if :: listed[s] :: else -> listed[s] = 1; atomic { ready[s] = 1; touch(READY) } fi
#else
  do
#if LIVE
  :: atomic { listed[s] -> lost[s] = 0; slot_step(s, from, sIdle); break }
  :: atomic { !listed[s] && lost[s] -> lost[s] = 0; listed[s] = 1; ready[s] = 1; touch(READY); slot_step(s, from, sIdle); break }
  :: atomic { !listed[s] && !lost[s] -> lost[s] = 1; listed[s] = 1 }
#else
  :: atomic { listed[s] -> slot_step(s, from, sIdle); break }
  :: atomic { !listed[s] -> listed[s] = 1 }
#endif
     atomic { ready[s] = 1; touch(READY) }
  od
#endif
}

/* `i`: the slot, `W` for none. `wk`: the worker sleeps, and has to be woken. */
inline claim_ready() {
  i = W;
  do
  :: i == W -> if EACH(POP_READY) :: else -> break fi;
     atomic {
       hand[i] = 0; listed[i] = 0;
       if
       :: st[i] == sIdle -> CLAIM(i); break
       :: else -> i = W; NOTE
       fi
     }
  od
}
inline claim_benched() {
  if
  :: benched > 0 && FAULT != 14 ->
     atomic { lock == 0 -> lock = 1 }
     do
     :: i == W -> if EACH(POP_BENCH) :: else -> break fi;
        atomic {
          if
          :: IS_BENCHED(i) -> CLAIM(i); break
          :: else -> i = W
          fi
        }
     od;
     atomic { benched = SUM(IN_BENCH); lock = 0 }
  :: else
  fi
}
inline claim_idle() {
  claim_ready();
  if :: i == W -> claim_benched() :: else fi
}
inline wake(i) { if :: wk -> wk = 0; token[i] = 1 :: else fi }
inline slot_send(i) { atomic { sent[i] = 0; slot_step(i, sHeld, sSearching) } }
inline hand_over(i, t) {
  atomic {
    assert(mbox[i] == 0); mbox[i] = t; accept();
    if :: AWAITED(t) -> slot_step(i, sHeld, sOffered) :: else -> slot_step(i, sHeld, sBusy) fi
  }
}

/* ---- threads, under the lock ------------------------------------------------------------- */
#define IS_WITHHELD(k) withheld[k]
#define OWED (W - limit - SUM(IS_WITHHELD))
#define IN_HOOK(k) (hook[k] && st[k] == sSearching)
/* One of the live workers is too many, besides so many. */
#define SURPLUS(others) (live + asked > limit + (others) && live > (others) + 1)
#define SELF_SURPLUS (SURPLUS(retiring) && SURPLUS(retiring + SUM(IN_HOOK)))

inline put_back(s) {
  if
  :: OWED == 0 -> freed[s] = 1; touch(FREED)
  :: else -> withheld[s] = 1; over = (OWED > 0)
  fi;
  taken[s] = 0;
  NOTE
}

/* On the slot `i`, with the task `t`, or none: then it is to look at the queue. */
inline spawn(t, r) {
  atomic { lock == 0 ->
    if
    :: (closed && (t || QEMPTY)) || OWED > 0 -> put_back(i); r = NOT_NEEDED
    :: else -> asked++; hook[i] = HOOKS; sent[i] = (t == 0); slot_step(i, sFree, sHeld); taken[i] = 0; r = OK;
       assert(live + asked <= limit);
#if !RETIRES && !CLOSES && !LIMITS && !HOOKS
       assert(live + asked <= S * ROUNDS);    /* no more threads than tasks */
#endif
#if FAULT == 8
       asleep = 0
#endif
    fi
  }
  if
  :: r == OK && fails > 0 ->
     atomic { lock == 0 -> asked--; fails--; hook[i] = 0; taken[i] = (t || HOOKS); slot_step(i, sHeld, sFree); lock = 1; r = NO_THREAD }
     atomic { put_back(i); lock = 0 }
  :: r == OK ->
     atomic { lock == 0 -> lock = 1; asked--; live++; begun[i] = 1; if :: live == 1 -> asleep = 0 :: else fi }
     if :: t -> hand_over(i, t) :: else -> slot_send(i) fi;
     lock = 0
  :: else
  fi;
  if :: r != OK -> made_space() :: else fi
}

/* Tells an idle worker to end, one that is `only_benched` if it still is. */
inline retire(s, only_benched) {
  returning = returning + (!HOOKS && FAULT != 9);
  if
  :: atomic { st[s] == sIdle && (!only_benched || !listed[s]) ->
       wk = parked[s]; parked[s] = 0; retiring++; slot_step(s, sIdle, sRetiring) }
     wake(s);
#if FAULT == 9
     returning = returning + !HOOKS
#endif
  :: else -> returning = returning - !HOOKS
  fi
}

/* ---- notifying ---------------------------------------------------------------------------- */

/* Sees to it that a worker looks at the queue. `even_notified`: whoever searches is enough, not only who
 * is awake. If nobody is idle, it `starts` a worker; without a thread (`r`) it looks for idle ones only. */
inline notify(even_notified, starts) {
  atomic { submits = 0; r = OK }
  do
  :: QEMPTY -> break
  :: else ->
     if :: awake > 0 || ((even_notified || r != OK) && notified > 0) -> break :: else fi;
     look_who_is_idle();
     if
     :: !idle && (!starts || SEARCHED || r == NO_THREAD) -> break
     :: !idle && starts && !SEARCHED && r != NO_THREAD ->
        if
        :: QEMPTY || NO_FREE -> break
        :: !QEMPTY && !NO_FREE ->
           notified = notified + !HOOKS;
           if EACH(FREE_ONE) :: else -> i = W; r = NOT_NEEDED fi;
           if :: i < W -> spawn(0, r) :: else fi;
           if :: r != OK && !HOOKS -> notified-- :: else fi
        fi;
        if :: r != OK :: else -> break fi
     :: idle -> idle = 0;
        notified = notified + (FAULT != 6);
        if EACH(AFFINE) :: claim_idle() fi;
        if
        :: i < W -> atomic { notified = notified + (FAULT == 6); sent[i] = 0; slot_step(i, sHeld, sSearching) } wake(i); break
        :: else -> notified = notified - (FAULT != 6); if :: FAULT == 5 -> break :: else fi
        fi
     fi
  od;
  atomic { i = W; r = 0; idle = 0 }
}

/* ---- a worker ----------------------------------------------------------------------------- */
#define IN_TROUBLE (closed || over)
#define WATCH if :: watches :: else -> awake++; watches = 1 fi


/* It looks at the queue, if nobody else has given it an order. */
inline take_self() {
  more = !watches;
  WATCH;
  if
  :: atomic { st[me] == sIdle -> parked[me] = 0; slot_step(me, sIdle, sSearching); more = 0 }
     goto search
  :: atomic { st[me] != sIdle -> skip }
     if :: more -> awake--; watches = 0; more = 0; notify(1, 1) :: else fi
  fi
}

proctype worker(byte me) {
  byte t; byte i = W; byte p; byte r; bit watches; bit owes; bit owes_space; bit will_watch;
  bit wk; bit more; bit got; bit stopped; bit submits; bit usual; bit idle;
  byte was;
sleep:
end_none:
  atomic { begun[me] -> begun[me] = 0 }
  st[me] != sHeld;
#if HOOKS
  /* Its hook is over. Who is to look at the queue counts before that can be seen. */
  if
  :: atomic { st[me] == sBusy || st[me] == sOffered -> hook[me] = 0; NOTE }
#if FAULT != 16
  :: atomic { st[me] == sSearching -> notified++ }
     atomic { hook[me] = 0; NOTE; assert(COUNTED) }
#else
  :: atomic { st[me] == sSearching -> hook[me] = 0; NOTE }
     notified++
#endif
  fi;
#endif
#if FAULT == 20
  take_self();
#endif
wait:
  if
  :: !watches && st[me] == sIdle && !QEMPTY && FAULT != 12 -> take_self()
  :: else
  fi;
look:
  if
  :: atomic { st[me] == sBusy -> t = mbox[me]; mbox[me] = 0; assert(t); will_watch = (CAP > 0 && !AWAITED(t)) } goto work
  :: atomic { st[me] == sOffered -> slot_step(me, sOffered, sBusy); t = mbox[me]; mbox[me] = 0; assert(t) } goto work
  :: atomic { st[me] == sSearching -> notified--; if :: !watches -> awake++; watches = 1 :: else fi } goto search
  :: st[me] == sRetiring -> goto leave
  :: st[me] == sIdle || (watches && st[me] == sHeld) -> skip /* no order */
  fi;
  if
  :: watches && CAP > 0 && cs[C(head)] != cEmpty && cp[C(head)] == head -> take_self(); goto look
  :: watches ->
     atomic { awake--; watches = 0 }
     if :: !QEMPTY && FAULT != 2 -> take_self() :: else fi
  :: !watches
  fi;
  if
  :: IN_TROUBLE && FAULT != 22 ->
     atomic { lock == 0 -> got = (closed || SELF_SURPLUS) }
     if :: got -> got = 0; take_self() :: else fi
  :: else
  fi;
  if
  :: atomic { st[me] == sIdle -> parked[me] = 1 }
end_parked:
     atomic { token[me] -> token[me] = 0 } goto look
  :: atomic { st[me] != sIdle -> goto look }
  fi;
work:
  if :: watches -> atomic { awake--; watches = 0; owes = 1 } :: else fi;
next:
  if :: owes -> owes = 0; notify(1, 1) :: else fi;
  if :: owes_space -> owes_space = 0; made_space() :: else fi;
  /* The task runs, and has ended. What comes next is found before its caller is released. */
  atomic { unended--; was = t; t = 0; usual = !IN_TROUBLE }
  if
  :: !usual -> WATCH; slot_step(me, sBusy, sSearching)
  :: else ->
     if :: CAP > 0 -> pop(t, p, 1) :: else fi;
     if
     :: t == 0 ->
        if :: will_watch -> WATCH :: else fi;
#if FAULT == 13
        made_space();
#endif
        publish_idle(me, sBusy)
     :: else
     fi
  fi;
  if :: AWAITED(was) -> done[OWNER(was)] = 1 :: else fi;
  was = 0; will_watch = (CAP > 0);
  if :: t -> owes_space = 1; goto next :: else -> will_watch = 0 fi;
#if FAULT != 13
  made_space();
#endif
  if :: usual -> usual = 0; goto wait :: else fi;
search:
  if
  :: IN_TROUBLE ->
     atomic { lock == 0 -> got = ((closed && QEMPTY) || SELF_SURPLUS); lock = got }
     if
     :: got -> got = 0; retiring++;
        returning = returning + !HOOKS;
        atomic { slot_step(me, sSearching, sRetiring); lock = 0 }
        goto leave
     :: else
     fi
  :: else
  fi;
  if
  :: CAP == 0
#if CLOSES == 2
  :: CAP > 0 && closed -> /* what is queued is another's */
     do :: skip_dead(p) :: QEMPTY -> break od
  :: CAP > 0 && !closed ->
#else
  :: CAP > 0 ->
#endif
     pop(t, p, 0);
     if
     :: t -> atomic { slot_step(me, sSearching, sBusy); owes_space = 1; will_watch = 1 } goto work
     :: else
     fi
  fi;
  publish_idle(me, sSearching);
  made_space();
  goto wait;
leave:
  if :: watches -> atomic { awake--; watches = 0; owes = 1 } :: else fi;
enough:
  atomic { lock == 0 -> lock = 1 }
  if
  :: !SURPLUS(retiring - 1) && !QEMPTY ->
     if :: stopped -> atomic { lock = 0; stopped = 0 } goto enough :: else fi;
     retiring--;
     atomic { awake++; watches = 1 }
     atomic { slot_step(me, sRetiring, sSearching) }
     returning = returning - !HOOKS;
     lock = 0;
     goto search
  :: else
  fi;
#if HOOKS
  if
  :: !stopped -> lock = 0;
     if :: owes -> owes = 0; notify(1, 1) :: else fi;
     stopped = 1; goto enough
  :: else
  fi;
#endif
  if
  :: CAP > 0 && live == 1 ->
#if FAULT == 3
     if :: head == tail -> asleep = 1 :: else -> lock = 0; goto enough fi
#else
     if :: atomic { head == tail -> asleep = 1 } :: else -> lock = 0; goto enough fi
#endif
  :: else
  fi;
  atomic { live--; retiring--; stopped = 0; owes = 0; slot_step(me, sRetiring, sFree) }
  atomic { put_back(me); lock = 0 }
  returning = returning - !HOOKS;
  made_space();
  notify(1, 1);
  goto sleep
}

/* ---- a group ------------------------------------------------------------------------------ */
#define SUBMITS_OF_GROUP(k) ofgroup[k]

/* A cancel that has looked through the queue leaves none of the group's tasks there, but those whose
 * submitters have yet to read the flag. */
inline check_group() {
  assert(!looked || ANYS(SUBMITS_OF_GROUP) || !(GROUPED(ct[0]) || GROUPED(ct[CELLS - 1])))
}

/* Is the group canceled already? */
inline ask_group() {
#if CANCELS
  if
  :: GROUPED(task) && cancelled && FAULT != 19 -> r = CANCELLED; goto refused
  :: else
  fi
#else
  skip
#endif
}

/* Takes tasks out of the queue, the group's or all: `tail` is read again after each one. The callers
 * to be released are in `back`. */
inline take_out(q, until, all, back) {
#if CAP > 0
  do :: skip_dead(q) :: atomic { !AT_HEAD(cDead) -> q = head; break } od;
  until = tail;
  do
  :: q < until ->
     if
     :: atomic { cs[C(q)] == cFull && cp[C(q)] == q -> cell_step(C(q), cFull, cHeld) }
        if
        :: atomic { all || GROUPED(ct[C(q)]) ->
             if :: AWAITED(ct[C(q)]) -> back = back | (1 << OWNER(ct[C(q)])) :: else fi;
             ct[C(q)] = 0 }
           atomic { unended--; cell_step(C(q), cHeld, cDead) }
           made_space();
           until = tail
        :: atomic { !(all || GROUPED(ct[C(q)])) -> cell_step(C(q), cHeld, cFull) }
        fi
     :: cp[C(q)] != q || cs[C(q)] == cDead
     fi;
     q++
  :: else -> break
  od;
  atomic { q = 0; until = 0 }
#else
  skip
#endif
}

/* ---- a submitter -------------------------------------------------------------------------- */
#define NOBODY_MOVES (awake + notified + returning == 0)
/* Saturated: `r` is `NO_SPACE`; else it stays `OK`: something moves. */
#define IF(condition) if :: (condition) -> skip :: else -> break fi
inline nobody_in_flight() { IF(benched == 0); IF(NOBODY_MOVES) }
inline look_for_saturation() {
  atomic { watch[me] = 1; seen[me] = 0; r = OK }
  do
  ::
#if FAULT != 7
     nobody_in_flight();
#endif
     IF(NO_READY);
     IF(NO_FREE);
     IF(tail - head >= CAP);
#if FAULT != 10 && FAULT != 7
     nobody_in_flight();
#endif
     IF(OLDEST_STAYS || FAULT == 18);
     IF(!seen[me] || FAULT == 10);
     r = NO_SPACE; break
  od;
  atomic { watch[me] = 0; seen[me] = 0 }
}

#define RELIES (!HOOKS || NO_FREE)
proctype submitter(byte me) {
  byte n; byte task; byte i = W; byte at; byte p; byte r;
  bit wk; bit submits; bit joined; bit searching; bit was_awake; bit idle;
#if CANCELS
  bit late; byte q; byte until; byte back;
#endif
again:
  if
  :: n == ROUNDS -> goto out
  :: n < ROUNDS
  fi;
  n++;
  atomic {
    if
#if TIMED != 2 && CANCELS != 2
    :: task = me + 1
#endif
#if CANCELS
    :: task = me + 1 + 16; ofgroup[me] = 1; late = looked
#endif
#if TIMED
    :: task = me + 1 + 8
#endif
    fi;
    incall[me] = 1; filled[me] = ALLBUSY; unseen[me] = ALL(NOT_IDLE); submits = 1
  }
  if :: IN_TROUBLE -> goto slow :: else fi;
#if CANCELS
  if :: GROUPED(task) && cancelled -> goto slow :: else fi;
#endif

  /* The fast way: the worker that this thread's last task went to, any here; the queue, if a worker is
   * awake, or on its way and nobody idle, or if everybody is busy. */
  if
  :: CAP == 0
  :: CAP > 0 ->
     if :: AWAITED(task) -> if EACH(AFFINE_AWAKE) :: skip fi :: else fi;
     if :: i < W -> goto claimed :: else fi;
     atomic { searching = SEARCHED; was_awake = awake > 0 }
     if :: tail - head < CAP && !asleep && !qclosed -> skip :: else -> goto looks fi;
     if
     :: was_awake && RELIES -> goto relies
     :: was_awake && !RELIES
     :: !was_awake ->
        do
        :: nobody_in_flight();
           atomic { IF(NO_READY); watch[me] = 1; seen[me] = 0 }
           IF(NO_FREE);
           push(task, p, r);
           if :: r != OK -> goto looks :: else fi;
           if :: benched > 0 -> goto notifies :: else fi;
           if :: seen[me] & (READY + FREED) -> goto notifies :: else -> goto queued fi
        od;
        if
        :: searching -> look_who_is_idle(); if :: !idle && RELIES -> goto relies :: else fi
        :: else
        fi
     fi;
     atomic { watch[me] = 0; seen[me] = 0; was_awake = 0; searching = 0; idle = 0 }
     if :: tail - head + W <= CAP -> goto spreads :: else fi
  fi;
  if EACH(AFFINE) :: skip fi;
  goto asked_last;
spreads:
  if EACH(AFFINE_AWAKE) :: skip fi;
asked_last:
  if :: i < W -> goto claimed :: else fi;
  goto looks;
relies:
  atomic { watch[me] = 0; seen[me] = 0; was_awake = 0; searching = 0; idle = 0 }
  push(task, p, r);
  if :: r != OK -> goto looks :: else fi;
  if :: SEARCHED -> goto queued :: else -> goto notifies fi;
looks:
  /* First of all the rest, so that a saturated pool refuses cheaply. */
  atomic { watch[me] = 0; seen[me] = 0; was_awake = 0; searching = 0; idle = 0 }
  if
  :: !BLOCKS && (CAP == 0 || !AWAITED(task)) ->
     look_for_saturation();
     if :: r == NO_SPACE -> goto saturated :: else fi
  :: else
  fi;

slow:
  atomic { watch[me] = 0; seen[me] = 0; submits = 1; r = 0; i = W; searching = 0; was_awake = 0; idle = 0 }
#if BLOCKS
  if :: joined && !onlist[me] -> onlist[me] = 1 :: else fi;
#endif
  if :: closed -> r = CLOSED; goto refused :: else fi;
  ask_group();
  if
  :: CAP > 0 ->
     was_awake = (awake > 0);
     if :: was_awake -> was_awake = RELIES :: else fi;
     if :: !was_awake -> look_who_is_idle(); was_awake = (idle && tail - head + W <= CAP) :: else fi;
     if
     :: was_awake ->
        push(task, p, r);
        if :: r == OK -> goto enqueued :: r == CLOSED -> goto refused :: else fi
     :: else
     fi
  :: else
  fi;
  atomic { was_awake = 0; idle = 0; searching = SEARCHED }
  claim_idle();
  if :: i < W -> goto claimed :: else fi;
  look_who_is_idle();
  if :: idle -> goto slow :: else fi;
  if :: !searching -> searching = SEARCHED :: else fi;
  if
  :: searching && RELIES && CAP == 0 -> goto slow
  :: searching && RELIES && CAP > 0 ->
     push(task, p, r);
     if :: r == OK -> goto enqueued :: r == CLOSED -> goto refused :: else fi
  :: else
  fi;
  if EACH(FREE_ONE) :: else -> goto all_started fi;
  assert(unseen[me]);    /* no thread in vain */
  spawn(task, r);
  if
  :: r == OK -> at = i; goto accepted
  :: r == NOT_NEEDED -> goto slow
  :: else
  fi;
  claim_idle();
  if :: i < W -> goto claimed :: else fi;
  if :: CAP > 0 -> push(task, p, r) :: else -> r = SLEEPS fi;
  if
  :: r == OK -> notify(0, 0); goto queued
  :: else -> goto refused
  fi;
all_started:
  if :: CAP > 0 -> push(task, p, r) :: else fi;
  if :: CAP > 0 && r == OK -> goto enqueued :: r == CLOSED -> goto refused :: else fi;
  look_for_saturation();
  if :: r == OK -> goto slow :: else fi;
saturated:
#if BLOCKS
  if
  :: !joined -> joined = 1;
#if FAULT == 15
     onlist[me] = 1; !onlist[me]
#else
     onlist[me] = 1
#endif
  :: joined -> !onlist[me]
  fi;
  goto slow;
#else
  assert(filled[me]);    /* no wrong refusal */
  goto refused;
#endif

claimed:
  atomic { at = i; hand_over(i, task) }
  wake(i);
  i = W;
  goto accepted;
enqueued:
  if :: awake > 0 -> goto queued :: else fi;
  if :: FAULT != 1 -> notify(0, 1) :: else fi;
  goto queued;
notifies:
  if :: FAULT != 1 -> notify(1, 1) :: else fi;
queued:
  at = W;
accepted:
  atomic { watch[me] = 0; seen[me] = 0; i = W; r = 0; submits = 0; was_awake = 0; idle = 0 }
#if CANCELS
  assert(!late);    /* what comes after a cancel is refused */
  if
  :: GROUPED(task) && cancelled && FAULT != 21 -> take_out(q, until, 0, back)
  :: else
  fi;
#endif
refused:
#if CANCELS
  atomic { ofgroup[me] = 0; late = 0; check_group() }
#endif
  atomic { incall[me] = 0; filled[me] = 0; unseen[me] = 0; submits = 0; i = W; searching = 0; was_awake = 0; idle = 0 }
#if BLOCKS
  if
  :: joined ->
     atomic { joined = 0; wk = !onlist[me]; onlist[me] = 0 }
     if :: wk -> wk = 0; made_space() :: else fi
  :: else
  fi;
#endif
  if :: r != 0 || !AWAITED(task) -> goto returned :: else fi;
  /* It waits; its deadline may come at any moment. */
  if
  :: done[me] -> goto outcome
  :: at < W -> /* in a mailbox */
     if
     :: atomic { st[at] == sOffered && mbox[at] == task -> mbox[at] = 0; unended--; sent[at] = 1; slot_step(at, sOffered, sHeld) }
#if FAULT != 17
        if :: !hook[at] -> notified++ :: else fi;
        slot_send(at);
#else
        slot_send(at);
        notified++;
#endif
        goto returned
     :: atomic { !(st[at] == sOffered && mbox[at] == task) -> skip }
     fi
  :: at == W && CAP > 0 ->
     if
     :: atomic { cs[C(p)] == cFull && cp[C(p)] == p -> cell_step(C(p), cFull, cHeld) }
        assert(ct[C(p)] == task);
        atomic { ct[C(p)] = 0; unended--; cell_step(C(p), cHeld, cDead) }
        made_space();
        goto returned
     :: atomic { cp[C(p)] != p || cs[C(p)] == cDead -> skip }
     fi
  fi;
  done[me];
outcome:
  done[me] = 0;
returned:
  task = 0; at = 0; p = 0; r = 0;
  goto again;
out:
  finished++
}

/* ---- the cleaner -------------------------------------------------------------------------- */
#define DROP_STALE(k) bench[k] = (IS_BENCHED(k) -> bench[k] : 0);
#define SWEEP_ONE(k) :: atomic { ready[k] -> ready[k] = 0; s = k; NOTE }
proctype cleaner() {
  byte left = RETIRES; byte s; byte n; bit wk;
  do
  :: left > 0 ->
     left--;
     atomic { lock == 0 -> lock = 1; EACH(DROP_STALE) n = SUM(IN_READY) }
#if FAULT != 23
     benched = benched + n;
#endif
     do
     :: n > 0 -> n--;
        if
        EACH(SWEEP_ONE)
        :: else -> break
        fi;
        atomic { listed[s] = 0; if :: st[s] == sIdle -> bench[s] = bench[s] + 1 :: else fi }
     :: n == 0 -> break
     od;
     atomic { n = 0; s = 0 }
     do
     :: s < W ->
        if
        :: bench[s] > 0 -> bench[s] = bench[s] - 1; retire(s, 1)
        :: skip
        fi;
        s++
     :: else -> break
     od;
     atomic { s = 0; benched = SUM(IN_BENCH); lock = 0 }
  :: break
  od
}

/* ---- the limit ---------------------------------------------------------------------------- */
#define GIVE_BACK(k) :: atomic { withheld[k] && OWED < 0 -> withheld[k] = 0; freed[k] = 1; touch(FREED); NOTE }
#define WITHHOLD(k) :: atomic { freed[k] && OWED > 0 -> freed[k] = 0; withheld[k] = 1; NOTE }
proctype limiter() {
  byte left = LIMITS; byte s; byte r; byte i = W; bit wk; bit submits; bit idle;
  do
  :: left > 0 ->
     atomic { lock == 0 -> lock = 1; limit = (left == LIMITS -> 1 : W) }
     do EACH(GIVE_BACK) :: else -> break od;
     do EACH(WITHHOLD) :: else -> break od;
#if FAULT != 24
     over = (OWED > 0);
#endif
     do
     :: s < W && SURPLUS(retiring + SUM(IN_HOOK)) -> retire(s, 0); s++
     :: else -> break
     od;
#if FAULT == 24
     over = (OWED > 0);
#endif
     atomic { s = 0; lock = 0 }
     notify_all();
     notify(1, 1);
     left--
  :: left == 0 -> break
  od;
  finished++
}

/* ---- a group's end ------------------------------------------------------------------------ */
proctype canceller() {
  byte q; byte until; byte back;
#if FAULT == 25
  take_out(q, until, 0, back);
  cancelled = 1;
#else
  cancelled = 1;
  notify_all();
  take_out(q, until, 0, back);
#endif
  atomic { looked = 1; check_group() }
  finished++
}

/* ---- a shutdown --------------------------------------------------------------------------- */
inline retire_idle() {
  s = 0;
  atomic { lock == 0 -> lock = 1 }
  do :: s < W -> retire(s, 0); s++ :: else -> break od;
  lock = 0
}
#define RELEASE(k) if :: back & (1 << k) -> done[k] = 1 :: else fi;
proctype closer() {
  byte s; byte q; byte until; byte back; bit wk;
#if FAULT == 26
  retire_idle();
#endif
  closed = 1;
  qclosed = 1;
  notify_all();
#if CLOSES == 2
  take_out(q, until, 1, back);
#endif
#if FAULT != 26
  retire_idle();
#endif
  EVERY(RELEASE)
  /* It has ended: and then nothing is left. */
  atomic { lock == 0 && live + asked == 0 -> assert(QEMPTY); assert(unended == 0) }
  finished++
}

/* ---- at rest ------------------------------------------------------------------------------ */
#define AT_REST(i) ((st[i] == sIdle && parked[i] && !freed[i] && !withheld[i]) || \
                    (st[i] == sFree && freed[i] + withheld[i] == 1 && !parked[i] && !hook[i]))
#define LISTED(i) (listed[i] == ready[i])
#define LIVES(i) (st[i] != sFree)
#define DEAD(k) (cp[k] < head || cp[k] >= tail || cs[k] == cDead)
#define PARTIES (S + (CLOSES > 0) + (CANCELS > 0) + (LIMITS > 0))
proctype judge() {
end_rest:
  timeout ->
  assert(finished == PARTIES);    /* every waiter has returned */
  assert(unended == 0);           /* every accepted task was started, handed back or discarded */
  assert(awake == 0 && notified == 0 && returning == 0 && asked == 0 && retiring == 0 && lock == 0);
  assert(benched == SUM(IN_BENCH));
  assert(ALL(AT_REST) && ALL(LISTED));
  assert(live <= limit && OWED == 0 && !over);
  assert(SUM(LIVES) == live && (asleep == (live == 0) || CAP == 0));
  assert(CAP == 0 || (DEAD(0) && DEAD(CELLS - 1)))
}

#define RUN_WORKER(k) begun[k] = 0; freed[k] = 1; run worker(k);
#define RUN_SUBMITTER(k) run submitter(k);
init {
  atomic {
    byte c;
    for (c : 0 .. CELLS - 1) { cp[c] = c }
    c = 0;
    EACH(RUN_WORKER)
    EVERY(RUN_SUBMITTER)
#if RETIRES
    run cleaner();
#endif
#if LIMITS
    run limiter();
#endif
#if CANCELS
    run canceller();
#endif
#if CLOSES
    run closer();
#endif
    run judge()
  }
}

/* Weakly fair: every waiter returns, and nothing that was accepted is left. */
ltl served { <> (finished == PARTIES && unended == 0) }
