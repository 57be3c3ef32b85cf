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
#define S 2          /* submitters: 1 to 4 */
#endif
#ifndef ROUNDS
#define ROUNDS 1     /* submissions of each */
#endif
#ifndef CAP
#define CAP 1        /* the queue: 0 to 2 tasks */
#endif
#ifndef FAILS
#define FAILS 0      /* how many threads the system may refuse */
#endif
#ifndef RETIRES
#define RETIRES 0    /* how many times the cleaner looks around */
#endif
#ifndef TIMED
#define TIMED 0      /* callers wait, and may take their task back: 1 some, 2 all */
#endif
#ifndef CANCELS
#define CANCELS 0    /* a group is cancelled: 1; 2: no task but the group's and those whose callers wait */
#endif
#ifndef HOOKS
#define HOOKS 0      /* workers have a start and a stop hook: 1 */
#endif
#ifndef BLOCKS
#define BLOCKS 0     /* submitters wait for room: 1 */
#endif
#ifndef CLOSES
#define CLOSES 0     /* a shutdown: 1 drains, 2 discards */
#endif
#ifndef LIVE
#define LIVE 0       /* a worker loses its listing once at most, each time it goes idle: 1 */
#endif
#ifndef FAULT
#define FAULT 0      /* which fault is planted: `faults` in .ci/spec has them */
#endif
#if CAP > 0
#define CELLS CAP
#else
#define CELLS 1
#endif

/* ---- what threads share ----------------------------------------------------------------- */
byte st[W];          /* a slot's word: its state, */
bit listed[W]; bit mark[W]; bit parked[W];
byte mbox[W];        /* and its mailbox: the task, 0 for none */
bit token[W];        /* `unpark` */
bit begun[W];        /* its thread has been started */
bit hooked[W];       /* in its start hook */
bit ready[W];        /* the ready ring: which slots have an entry in it. In any order */
bit freed[W];         /* the free ring */
byte awake; byte notified; byte transit; byte marked;

byte head; byte tail; bit qclosed; bit asleep = 1; byte tombs;
byte cs[CELLS]; byte cp[CELLS]; byte ct[CELLS];  /* stamps: state and position; tasks */

bit lock;            /* the registry, and what it guards */
byte live; byte starting;
bit closed;
bit cancelled;       /* the group's flag */

bit onlist[S];       /* submitters that wait for room */
bit done[S];         /* a waiting caller's outcome */
byte fails = FAILS;
#if LIVE
bit lost[W];
#endif

/* ---- what only the judges read ---------------------------------------------------------- */
byte unended;        /* accepted, and neither ended nor taken back nor discarded */
byte finished;       /* submitters, and a shutdown, that have returned */
bit sent[W];         /* `Held` by who will send it to the queue */
bit hand[W];         /* its entry of the ready ring is in the hands of a submission */
bit taken[W];        /* its entry of the free ring is in the hands of a submission */
bit incall[S]; bit filled[S];   /* at some moment of the call all was taken, */
bit unseen[S];                  /* or no worker was idle */
bit watch[S]; byte seen[S];   /* what has moved since a submission began to look */
bit ofgroup[S];                 /* it submits a task of the group's, */
bit looked;                     /* whose cancel has been through the queue */
hidden byte hf; hidden byte ht;

#define READY 16
#define FREED 32
#define POPS 64

/* A task: its submitter's number plus one; 8 more if its caller waits, and may take it back; 16
 * more if it is of the group. */
#define REVOCABLE(t) ((t) >= 8)
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
#elif S == 3
#define EVERY(X) X(0) X(1) X(2)
#define ANYS(X) (X(0) || X(1) || X(2))
#else
#define EVERY(X) X(0) X(1) X(2) X(3)
#define ANYS(X) (X(0) || X(1) || X(2) || X(3))
#endif

/* ---- the judges ------------------------------------------------------------------------- */

/* Refusals. A worker is taken that has a task, or that a submission is just then taking. */
#define TAKEN(i) (st[i] == sBusy || st[i] == sOffered || (st[i] == sHeld && !sent[i]) || \
                  (st[i] == sIdle && hand[i] && !mark[i]) || (st[i] == sFree && taken[i]))
#define ALLTAKEN (ALL(TAKEN) && tail - head >= CAP + tombs)
#define NOT_IDLE(i) (st[i] != sIdle || (hand[i] && !mark[i]) || hooked[i])
#define NOTE1(k) unseen[k] = (incall[k] && (unseen[k] || ALL(NOT_IDLE))); filled[k] = (incall[k] && (filled[k] || ALLTAKEN));
#define NOTE EVERY(NOTE1)
#define TOUCHED hf
#define TOUCH1(k) seen[k] = (watch[k] -> (seen[k] | TOUCHED) : 0);
inline touch(b) { hf = b; EVERY(TOUCH1) }

/* The counters' invariants: who is out of sight is counted. */
#define IS_SEARCHING(i) (st[i] == sSearching)
#define IS_RETIRING(i) (st[i] == sRetiring)
#define IS_MARKED(i) (mark[i])
#define IS_AWAY(i) (st[i] == sFree && !freed[i])
#define CAN_BE_FOUND(i) (st[i] != sIdle || listed[i] || mark[i])
#define FLAGS_FIT(i) (st[i] == sIdle || (!mark[i] && !parked[i]))
#define COUNTED ( SUM(IS_SEARCHING) <= awake + notified \
  && SUM(IS_SEARCHING) + SUM(IS_RETIRING) <= awake + notified + transit \
  && SUM(IS_AWAY) <= transit + lock && SUM(IS_MARKED) <= marked && ALL(CAN_BE_FOUND) && ALL(FLAGS_FIT) )

/* The tables. */
c_decl {
  \#include <stdio.h>
  static char slot_met[8][8], cell_met[8][8], corner_met[3];
};
c_code {
  static void meet(char met[8][8], const char *what, int from, int to) {
    if (!met[from][to]) { met[from][to] = 1; printf("met: %s %d %d\n", what, from, to); }
  }
  /* What has to come up besides the steps: `steps` in .ci/spec has it. */
  static void come(int corner) {
    if (!corner_met[corner]) { corner_met[corner] = 1; printf("met: corner %d\n", corner); }
  }
};

inline slot_step(s, from, to) {
  assert(st[s] == from);
  assert(0 SLOT_STEPS);
  st[s] = to;
  touch(1 << s);
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
  hf = from; ht = to;
  c_code { meet(cell_met, "cell", hf, ht); }
}

inline accept() { unended++; assert(unended <= W + CAP) }

/* ---- who waits for room ----------------------------------------------------------------- */
#define WAITS(k) onlist[k]
#define OFF(k) :: onlist[k] -> onlist[k] = 0
#define NONE(k) onlist[k] = 0;
inline made_room() {
#if BLOCKS
  if :: ANYS(WAITS) -> atomic { if EVERY(OFF) :: else fi } :: else fi
#else
  skip
#endif
}
inline settled() {
#if BLOCKS
  if :: ANYS(WAITS) -> d_step { EVERY(NONE) } :: else fi
#else
  skip
#endif
}
inline leave_transit() { transit--; settled() }

/* ---- the queue -------------------------------------------------------------------------- */
#define C(p) ((p) % CELLS)
#define QEMPTY (CAP == 0 || head == tail)
#define OK 1
#define NOROOM 2
#define SLEEPS 3
#define CLOSED 4
#define CANCELLED 5

inline push(t, p, r) {
  if
  :: atomic { qclosed -> r = CLOSED }
  :: atomic { !qclosed && asleep -> r = SLEEPS }
  :: atomic { !qclosed && !asleep && tail - head < CAP && cs[C(tail)] == cEmpty && cp[C(tail)] == tail ->
       p = tail; tail++; accept(); NOTE; r = OK }
     atomic { ct[C(p)] = t; if :: REVOCABLE(t) -> cell_step(C(p), cEmpty, cRevocable) :: else -> cell_step(C(p), cEmpty, cFull) fi }
  :: atomic { !qclosed && !asleep && tail - head >= CAP && tombs == 0 -> r = NOROOM }
  :: atomic { !qclosed && !asleep && tail - head >= CAP && tombs > 0 -> r = NOROOM; p = head }
     do
     :: atomic { r == NOROOM && p < tail && cs[C(p)] == cTombstone && cp[C(p)] == p -> cell_step(C(p), cTombstone, cHeld); r = OK }
     :: atomic { r == NOROOM && p < tail && !(cs[C(p)] == cTombstone && cp[C(p)] == p) -> p++ }
     :: else -> break
     od;
     if
     :: atomic { r == OK -> if :: FAULT != 18 -> tombs-- :: else fi; accept(); NOTE; if :: qclosed -> c_code { come(CLOSES); } :: else fi }
        atomic { ct[C(p)] = t; if :: REVOCABLE(t) -> cell_step(C(p), cHeld, cRevocable) :: else -> cell_step(C(p), cHeld, cFull) fi }
     :: else
     fi
  fi
}

/* The oldest task, or 0. Waits for a thread between two steps at the oldest position, unless it
 * gives `once` only a look. */
#define AT_HEAD(state) (head != tail && cs[C(head)] == state && cp[C(head)] == head)
inline pop(t, h, once) {
  t = 0;
  do
  :: atomic { AT_HEAD(cFull) -> h = head; t = ct[C(h)]; ct[C(h)] = 0; head++; touch(POPS) }
     atomic { cell_step(C(h), cFull, cEmpty); break }
#if FAULT != 11
  :: atomic { AT_HEAD(cRevocable) -> h = head; cell_step(C(h), cRevocable, cHeld) }
     atomic { t = ct[C(h)]; ct[C(h)] = 0; head++; touch(POPS) }
     atomic { cell_step(C(h), cHeld, cEmpty); break }
#else
  :: atomic { AT_HEAD(cRevocable) -> h = head; t = ct[C(h)] }
     atomic { head++; touch(POPS); ct[C(h)] = 0; cs[C(h)] = cEmpty; cp[C(h)] = cp[C(h)] + CELLS; break }
#endif
  :: atomic { AT_HEAD(cTombstone) -> h = head; cell_step(C(h), cTombstone, cHeld) }
     atomic { head++; touch(POPS) }
     atomic { cell_step(C(h), cHeld, cEmpty) }
     atomic { tombs--; NOTE }
  :: atomic { QEMPTY -> break }
  :: atomic { once && !QEMPTY && !AT_HEAD(cFull) && !AT_HEAD(cRevocable) && !AT_HEAD(cTombstone) -> break }
  od;
  h = 0
}

/* ---- claims, and what becomes of them ---------------------------------------------------- */
#define CLAIM(i) wk = parked[i]; parked[i] = 0; mark[i] = 0; sent[i] = !submits; slot_step(i, sIdle, sHeld)
#define POP_READY(k) :: atomic { ready[k] -> ready[k] = 0; i = k; hand[k] = submits; NOTE }
#define IN_READY(k) ready[k]
#define MARKED_ONE(k) :: atomic { st[k] == sIdle && mark[k] && (even_hooked || !hooked[k]) -> i = k; CLAIM(k) }
#define FREE_ONE(k) :: atomic { freed[k] -> freed[k] = 0; i = k; taken[k] = submits; NOTE }
#define IN_FREE(k) freed[k]
#define AFFINE(k) :: atomic { st[k] == sIdle && !mark[k] -> i = k; CLAIM(k) }
#define NO_READY (SUM(IN_READY) == 0)
#define NO_FREE (SUM(IN_FREE) == 0)


/* Makes idle a slot that is the thread's own, so that it can be found: listed, or marked in its hook. */
inline publish_idle(s, from) {
#if FAULT == 4
  atomic { st[s] = sIdle; touch(1 << s) }
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
inline make_idle(s) {
  if
  :: hooked[s] -> marked++; atomic { mark[s] = 1; slot_step(s, sHeld, sIdle) }
  :: else -> publish_idle(s, sHeld)
  fi
}

/* `i`: the slot, `W` for none. `wk`: the worker sleeps, and has to be woken. */
inline claim_ready() {
  i = W;
  do
  :: i == W -> if EACH(POP_READY) :: else -> break fi;
     atomic {
       hand[i] = 0; listed[i] = 0;
       if
       :: st[i] == sIdle && !mark[i] -> CLAIM(i); break
       :: else -> i = W
       fi
     }
  od
}
inline claim_marked(even_hooked) {
  i = W;
  if
  :: marked > 0 && FAULT != 14 -> if EACH(MARKED_ONE) :: else fi
  :: else
  fi;
  if
#if FAULT != 10
  :: i < W -> marked--
#endif
  :: else
  fi
}
inline claim_idle() {
  claim_ready();
  if :: i == W -> claim_marked(0) :: else fi
}
inline wake(i) { if :: wk -> wk = 0; token[i] = 1 :: else fi }
inline send(i) { slot_send(i); wake(i) }
inline slot_send(i) { atomic { sent[i] = 0; slot_step(i, sHeld, sSearching) } }
inline hand_over(i, t) {
  atomic {
    assert(mbox[i] == 0); mbox[i] = t; accept();
    if :: AWAITED(t) -> slot_step(i, sHeld, sOffered) :: else -> slot_step(i, sHeld, sBusy) fi
  }
}

/* ---- threads ------------------------------------------------------------------------------ */
inline take_free() {
  i = W;
  if
  :: !NO_FREE ->
#if FAULT != 7
     transit++;
#endif
     if EACH(FREE_ONE) :: else fi;
#if FAULT != 7
     if :: i == W -> leave_transit() :: else fi
#endif
  :: else
  fi
}

/* On the slot `i`, with the task `t`, or none: then it is to look at the queue. `r`: `OK`, `CLOSED`, or
 * `NOROOM` for no thread. */
inline spawn(t, r) {
  atomic { lock == 0 ->
    if
    :: closed && (t || QEMPTY) -> taken[i] = 0; freed[i] = 1; touch(FREED); r = CLOSED
    :: else -> starting++; hooked[i] = HOOKS; sent[i] = (t == 0); slot_step(i, sFree, sHeld); taken[i] = 0; r = OK;
#if !RETIRES && !CLOSES
       assert(live + starting <= S * ROUNDS);    /* no more threads than tasks */
#endif
#if FAULT == 8
       asleep = 0
#endif
    fi
  }
  if
  :: r == OK && fails > 0 ->
     atomic { lock == 0 -> starting--; fails--; hooked[i] = 0; taken[i] = (t > 0); slot_step(i, sHeld, sFree); lock = 1; r = NOROOM }
     atomic { taken[i] = 0; freed[i] = 1; touch(FREED); lock = 0 }
  :: r == OK ->
     atomic { lock == 0 -> lock = 1; starting--; live++; begun[i] = 1; if :: live == 1 -> asleep = 0 :: else fi }
     if
     :: t -> hand_over(i, t)
     :: else -> if
        :: hooked[i] -> make_idle(i)
        :: else -> notified++; slot_send(i)
        fi
     fi;
     lock = 0
  :: else
  fi;
#if FAULT != 7
  leave_transit()
#else
  settled()
#endif
}

/* ---- notifying ---------------------------------------------------------------------------- */
#define IS_CLAIMABLE(k) (mark[k] && !hooked[k])
#define SEARCHED (awake + notified > 0)

/* Sees to it that a worker looks at the queue. `even_awake`: whoever searches is enough, not only who
 * is awake. Then `again` starts a worker, if need be. */
inline notify(even_notified, starts) {
  submits = 0;
  do
  :: QEMPTY -> break
  :: else ->
     if
     :: awake > 0 || (even_notified && notified > 0) -> break
     :: else ->
        if
        :: NO_READY && marked > 0 && SUM(IS_CLAIMABLE) == 0 -> i = W + 1
        :: NO_READY && marked == 0 -> i = W + 1
        :: else ->
#if FAULT != 6
           if :: starts -> notified++ :: else -> transit++ fi;    /* nobody relies on one that starts none */
#endif
           if EACH(AFFINE) :: claim_idle() fi;
#if FAULT == 6
           if :: i < W -> notified++ :: else fi;
#endif
           if
           :: i < W ->
#if FAULT != 6
              if :: starts -> skip :: else -> atomic { transit--; notified++ } fi;
#endif
              send(i);
              if :: starts -> skip :: else -> settled() fi;
              break
#if FAULT == 6
           :: else -> break
#else
           :: else ->
              if :: starts -> notified-- :: else -> leave_transit() fi
#if FAULT == 5
              ; break
#endif
#endif
           fi
        fi;
        if
        :: i == W + 1 && starts && !SEARCHED && !QEMPTY ->
           take_free();
           if :: i < W -> spawn(0, r) :: else fi;
           break
        :: i == W + 1 && !(starts && !SEARCHED && !QEMPTY) -> break
        :: i == W
        fi
     fi
  od;
  i = W; r = 0
}

/* Tells an idle worker to end, under the lock. */
inline retire(s, only_marked) {
#if FAULT != 19
  transit++;
#endif
  if
  :: atomic { st[s] == sIdle && (!only_marked || (mark[s] && !hooked[s])) ->
       wk = parked[s]; parked[s] = 0; more = mark[s]; mark[s] = 0; slot_step(s, sIdle, sRetiring) }
     if :: more -> marked-- :: else fi;
     wake(s)
#if FAULT == 19
     ; transit++
#endif
  :: else ->
#if FAULT != 19
     leave_transit()
#else
     skip
#endif
  fi;
  more = 0
}

/* ---- a worker ----------------------------------------------------------------------------- */
#define TAKE_SELF(n) ret_take = n; goto taking; took##n: skip
#define NOTIFY(n) ret = n; goto notifying; back##n: skip
inline take_self_or_goto() {
  if
  :: watches -> more = 0
  :: else -> awake++; watches = 1; more = 1
  fi;
  if
  :: atomic { st[me] == sIdle -> wk = mark[me]; mark[me] = 0; parked[me] = 0; slot_step(me, sIdle, sSearching) }
     if :: wk -> marked-- :: else fi;
     wk = 0; got = 1
  :: atomic { st[me] != sIdle -> got = 0 }
     if
     :: more -> awake--; watches = 0; ret = 1; goto notifying
     :: else
     fi
  fi
}

proctype worker(byte me) {
  byte t; byte i = W; byte p; byte r; bit watches; bit owes; bit owes_room; bit will_watch;
  bit wk; bit more; bit got; bit stopped; bit submits;
  byte was; byte ret; byte ret_take;
sleep:
end_none:
  atomic { begun[me] -> begun[me] = 0 }
  st[me] != sHeld;
#if HOOKS
  hooked[me] = 0;
#endif
  if
  :: st[me] == sIdle || FAULT == 24 -> TAKE_SELF(1); if :: got -> got = 0; goto search :: else fi
  :: else
  fi;
wait:
  if
  :: !watches && !QEMPTY && FAULT != 12 -> TAKE_SELF(2); if :: got -> got = 0; goto search :: else fi
  :: else
  fi;
look:
  if
  :: atomic { st[me] == sBusy -> t = mbox[me]; mbox[me] = 0; assert(t); will_watch = (CAP > 0) } goto work
  :: atomic { st[me] == sOffered -> slot_step(me, sOffered, sBusy); t = mbox[me]; mbox[me] = 0; assert(t) } goto work
  :: atomic { st[me] == sSearching -> notified--; if :: !watches -> awake++; watches = 1 :: else fi } goto search
  :: st[me] == sRetiring -> goto leave
  :: st[me] == sIdle || (watches && st[me] == sHeld) -> skip /* no order */
  fi;
  if
  :: watches && CAP > 0 && cs[C(head)] != cEmpty && cp[C(head)] == head ->
     TAKE_SELF(3); if :: got -> got = 0; goto search :: else -> goto look fi
  :: watches ->
     atomic { awake--; watches = 0 }
     if :: !QEMPTY && FAULT != 2 -> TAKE_SELF(4); if :: got -> got = 0; goto search :: else fi :: else fi;
     goto rest
  :: !watches -> goto rest
  fi;
rest:
  if
  :: closed ->
     transit++;
     if
     :: atomic { st[me] == sIdle -> wk = mark[me]; mark[me] = 0; parked[me] = 0; slot_step(me, sIdle, sRetiring) }
        if :: wk -> marked-- :: else fi;
        wk = 0
     :: else -> leave_transit()
     fi
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
  if :: owes -> owes = 0; NOTIFY(2) :: else fi;
  if :: owes_room -> owes_room = 0; made_room() :: else fi;
  /* The task runs, and has ended. What comes next is found before its caller is released. */
  atomic { unended--; was = t; t = 0 }
  if :: CAP > 0 -> pop(t, p, 1) :: else fi;
  if
  :: t == 0 ->
     if :: will_watch -> awake++; watches = 1 :: else fi;
#if FAULT == 16
     if :: AWAITED(was) -> done[OWNER(was)] = 1 :: else fi;
     made_room(); was = 0;
#endif
     publish_idle(me, sBusy)
  :: else
  fi;
  if :: AWAITED(was) -> done[OWNER(was)] = 1 :: else fi;
  was = 0; will_watch = (CAP > 0);
  if :: t -> owes_room = 1; goto next :: else -> will_watch = 0 fi;
#if FAULT != 16
  made_room();
#endif
  goto wait;
search:
  if
  :: CAP == 0
  :: else ->
     pop(t, p, 0);
     if
     :: t -> atomic { slot_step(me, sSearching, sBusy); owes_room = 1; will_watch = 1 } goto work
     :: else
     fi
  fi;
  publish_idle(me, sSearching);
  made_room();
  goto wait;
leave:
  if :: watches -> atomic { awake--; watches = 0 } :: else fi;
  owes = 0;
enough:
  atomic { lock == 0 -> lock = 1 }
  if
  :: !QEMPTY ->
stay:
     atomic { lock = 0; stopped = 0 }
     atomic { transit--; awake++; watches = 1 }
     atomic { slot_step(me, sRetiring, sSearching) }
     settled();
     goto search
  :: else
  fi;
#if HOOKS
  if :: !stopped -> atomic { lock = 0; stopped = 1 } goto enough :: else fi;
#endif
  if
  :: CAP > 0 && live == 1 ->
#if FAULT == 3
     if :: head == tail -> asleep = 1 :: else -> goto stay fi
#else
     if :: atomic { head == tail -> asleep = 1 } :: else -> goto stay fi
#endif
  :: else
  fi;
  atomic { live--; stopped = 0; slot_step(me, sRetiring, sFree) }
  atomic { freed[me] = 1; touch(FREED); lock = 0 }
  leave_transit();
  made_room();
  NOTIFY(3);
  goto sleep;

  /* Its subroutines. */
taking:
  take_self_or_goto();
taken_self:
  more = 0;
  if
  :: ret_take == 1 -> ret_take = 0; goto took1
  :: ret_take == 2 -> ret_take = 0; goto took2
  :: ret_take == 3 -> ret_take = 0; goto took3
  :: ret_take == 4 -> ret_take = 0; goto took4
  fi;
notifying:
  notify(1, 1);
  if
  :: ret == 1 -> ret = 0; goto taken_self
  :: ret == 2 -> ret = 0; goto back2
  :: ret == 3 -> ret = 0; goto back3
  fi
}


/* ---- a group ------------------------------------------------------------------------------ */
#define SUBMITS_OF_GROUP(k) ofgroup[k]

/* A cancel that has looked through the queue leaves none of the group's tasks there, but those whose
 * submitters have yet to read the flag. */
inline judge_group() {
  assert(!looked || ANYS(SUBMITS_OF_GROUP) || !(GROUPED(ct[0]) || GROUPED(ct[CELLS - 1])))
}

/* Is the group cancelled already? */
inline ask_group() {
#if CANCELS
  if
  :: GROUPED(task) && cancelled && FAULT != 23 -> r = CANCELLED; goto refused
  :: else
  fi
#else
  skip
#endif
}

/* Takes the group's tasks out of the queue: `tail` is read again after each one. */
inline discard_group(q, until) {
#if CAP > 0
  q = head;
  until = tail;
  do
  :: q < until ->
     if
     :: atomic { cs[C(q)] == cRevocable && cp[C(q)] == q -> cell_step(C(q), cRevocable, cHeld) }
        if
        :: atomic { GROUPED(ct[C(q)]) -> ct[C(q)] = 0; tombs++ }
           atomic { unended--; cell_step(C(q), cHeld, cTombstone) }
           made_room();
           until = tail
        :: atomic { !GROUPED(ct[C(q)]) -> cell_step(C(q), cHeld, cRevocable) }
        fi
     :: cp[C(q)] != q || cs[C(q)] == cFull || cs[C(q)] == cTombstone
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
#define NOBODY_MOVES (awake + notified + transit == 0)
#define BUSY_ENTRY(k) (!ready[k] || st[k] == sHeld || st[k] == sOffered || st[k] == sBusy)

/* Saturated: `r` is `NOROOM`; else it stays `OK`: something moves. */
inline look_for_saturation() {
  atomic { watch[me] = 1; seen[me] = 0; r = OK }
#if FAULT != 9
  if :: NOBODY_MOVES -> skip :: else -> goto moves fi;
  if :: marked == 0 -> skip :: else -> goto moves fi;
  if :: NOBODY_MOVES -> skip :: else -> goto moves fi;
#endif
  if :: NO_FREE && !(seen[me] & FREED) -> skip :: else -> goto moves fi;
  atomic { if :: ALL(BUSY_ENTRY) && !(seen[me] & READY) -> seen[me] = seen[me] & (FREED + POPS) :: else -> goto moves fi }
  if :: tail - head >= CAP + tombs -> skip :: else -> goto moves fi;
#if FAULT != 13 && FAULT != 9
  if :: NOBODY_MOVES -> skip :: else -> goto moves fi;
  if :: marked == 0 -> skip :: else -> goto moves fi;
  if :: NOBODY_MOVES -> skip :: else -> goto moves fi;
#endif
  if :: seen[me] == 0 || FAULT == 13 -> r = NOROOM :: else fi;
moves:
  atomic { watch[me] = 0; seen[me] = 0 }
}

#define PUSH(n) ret = n; goto pushing; pushed##n: skip
#define LOOK(n) ret = n; goto looking; looked##n: skip
#define CLAIM_IDLE(n) ret = n; goto claiming; claimed##n: skip
#define NOTIFY_AS(n, e, s) even = e; starts = s; ret = n; goto notifying; back##n: skip
proctype submitter(byte me) {
  byte n; byte task; byte i = W; byte at; byte p; byte r; bit wk; bit submits; bit joined; bit searching; bit some_marked; bit more; byte ret; bit even; bit starts;
#if CANCELS
  bit late; byte q; byte until;
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
    incall[me] = 1; filled[me] = ALLTAKEN; unseen[me] = ALL(NOT_IDLE); submits = 1
  }
  if :: closed -> r = CLOSED; goto refused :: else fi;
  ask_group();

  /* The fast way: the worker that this thread's last task went to, any here; the queue, if a worker is
   * awake, or nobody is idle. */
  if EACH(AFFINE) :: skip fi;
  if :: i < W -> goto claimed :: else fi;
  if
  :: CAP == 0
  :: CAP > 0 && awake > 0 -> PUSH(1);
     if
     :: r == OK -> if :: SEARCHED -> goto queued :: else -> goto notifies fi
     :: else
     fi
  :: CAP > 0 && awake == 0 ->
     if :: NOBODY_MOVES :: else -> goto slow fi;
     if :: marked == 0 :: else -> goto slow fi;
     if :: NOBODY_MOVES :: else -> goto slow fi;
     atomic { if :: NO_READY -> watch[me] = 1; seen[me] = 0 :: else -> goto slow fi }
     if :: NO_FREE && !(seen[me] & FREED) -> skip :: else -> goto slow fi;
     PUSH(2);
     if
     :: r != OK -> goto slow
     :: else
     fi;
     if :: marked == 0 -> skip :: else -> goto notifies fi;
     if :: !(seen[me] & (READY + FREED)) -> goto queued :: else -> goto notifies fi
  fi;
  /* First of all the rest, so that a saturated pool refuses cheaply. */
  if
  :: !BLOCKS && (CAP == 0 || !AWAITED(task)) ->
     LOOK(1);
     if :: r == NOROOM -> goto saturated :: else fi
  :: else
  fi;

slow:
  atomic { watch[me] = 0; seen[me] = 0; submits = 1; r = 0; i = W }
#if BLOCKS
  if :: joined && !onlist[me] -> onlist[me] = 1 :: else fi;
#endif
  if :: closed -> r = CLOSED; goto refused :: else fi;
  ask_group();
  if
  :: CAP > 0 && (awake > 0 || ((!NO_READY || SUM(IS_CLAIMABLE) > 0) && tail - head + W <= CAP)) ->
     PUSH(3);
     if :: r == OK -> goto enqueued :: r == CLOSED -> goto refused :: else fi
  :: else
  fi;
  some_marked = (marked > 0);
  searching = SEARCHED;
  CLAIM_IDLE(1);
  if :: i < W -> goto claimed :: else fi;
  if
  :: !searching && (SEARCHED || !NO_READY) -> searching = 1
  :: else
  fi;
  if
  :: searching && CAP == 0 -> goto half_done
  :: searching && CAP > 0 ->
     PUSH(4);
     if :: r == OK -> goto enqueued :: r == CLOSED -> goto refused :: else fi
  :: else
  fi;
  if
  :: some_marked ->
     claim_marked(1);
     if :: i < W -> goto claimed :: else fi;
     if :: SEARCHED || !NO_READY -> goto half_done :: else fi
  :: else
  fi;
  take_free();
  if
  :: i < W ->
     assert(unseen[me]);    /* no thread in vain */
     spawn(task, r);
     if
     :: r == OK -> at = i; goto accepted
     :: r == CLOSED -> goto refused
     :: else ->
        CLAIM_IDLE(2);
        if :: i < W -> goto claimed :: else fi;
        claim_marked(1);
        if :: i < W -> goto claimed :: else fi;
        if :: CAP > 0 -> PUSH(5) :: else -> r = NOROOM fi;
        if
        :: r == OK -> NOTIFY_AS(1, 0, 0); goto queued
        :: r == CLOSED -> goto refused
        :: else
        fi;
        r = SLEEPS; goto refused
     fi
  :: else
  fi;
  if :: CAP > 0 -> PUSH(6) :: else fi;
  if :: CAP > 0 && r == OK -> goto enqueued :: r == CLOSED -> goto refused :: else fi;
  LOOK(2);
  if :: r == OK -> goto half_done :: else fi;
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
half_done:
#if BLOCKS
  if
  :: goto slow
  :: transit > 0 -> if :: !joined -> joined = 1; onlist[me] = 1 :: joined -> !onlist[me] fi; goto slow
  fi;
#else
  goto slow;
#endif

claimed:
  atomic { at = i; hand_over(i, task) }
  wake(i);
  i = W;
  goto accepted;
enqueued:
  if :: awake > 0 -> goto queued :: else fi;
  if :: FAULT != 1 -> NOTIFY_AS(2, 0, 1) :: else fi;
  goto queued;
notifies:
  if :: FAULT != 1 -> NOTIFY_AS(3, 1, 1) :: else fi;
queued:
  at = W;
accepted:
  atomic { watch[me] = 0; seen[me] = 0; i = W; r = 0; submits = 0 }
#if CANCELS
  assert(!late);    /* what comes after a cancel is refused */
  if
  :: GROUPED(task) && cancelled && FAULT != 22 -> discard_group(q, until)
  :: else
  fi;
#endif
refused:
#if CANCELS
  atomic { ofgroup[me] = 0; late = 0; judge_group() }
#endif
  atomic { incall[me] = 0; filled[me] = 0; unseen[me] = 0; submits = 0; i = W; searching = 0; some_marked = 0 }
#if BLOCKS
  if
  :: joined ->
     atomic { joined = 0; wk = !onlist[me]; onlist[me] = 0 }
     if :: wk -> wk = 0; made_room() :: else fi
  :: else
  fi;
#endif
  if :: r != 0 || !AWAITED(task) -> goto returned :: else fi;
  /* It waits; its deadline may come at any moment. */
  if
  :: done[me] -> goto outcome
  :: at < W -> /* in a mailbox */
     if
     :: atomic { st[at] == sOffered && mbox[at] == task -> mbox[at] = 0; unended--; slot_step(at, sOffered, sHeld) }
        make_idle(at);
        made_room();
        if
        :: closed ->
           atomic { lock == 0 -> lock = 1 }
           retire(at, 0);
           lock = 0
        :: else
        fi;
        if :: FAULT != 17 -> NOTIFY_AS(4, 1, 0) :: else fi;    /* its time is up: no thread */
        goto returned
     :: atomic { !(st[at] == sOffered && mbox[at] == task) -> skip }
     fi
  :: at == W && CAP > 0 ->
     if
     :: atomic { cs[C(p)] == cRevocable && cp[C(p)] == p -> cell_step(C(p), cRevocable, cHeld) }
        assert(ct[C(p)] == task);
        atomic { ct[C(p)] = 0; tombs++ }
        atomic { unended--; cell_step(C(p), cHeld, cTombstone) }
        made_room();
        goto returned
     :: atomic { cp[C(p)] != p || cs[C(p)] == cFull || cs[C(p)] == cTombstone -> skip }
     fi
  fi;
  done[me];
outcome:
  done[me] = 0;
returned:
  task = 0; at = 0; p = 0; r = 0;
  goto again;
out:
  finished++;
  goto gone;

  /* Its subroutines. */
claiming:
  claim_idle();
  if
  :: ret == 1 -> ret = 0; goto claimed1
  :: ret == 2 -> ret = 0; goto claimed2
  fi;
looking:
  look_for_saturation();
  if
  :: ret == 1 -> ret = 0; goto looked1
  :: ret == 2 -> ret = 0; goto looked2
  fi;
pushing:
  push(task, p, r);
  if
  :: ret == 1 -> ret = 0; goto pushed1
  :: ret == 2 -> ret = 0; goto pushed2
  :: ret == 3 -> ret = 0; goto pushed3
  :: ret == 4 -> ret = 0; goto pushed4
  :: ret == 5 -> ret = 0; goto pushed5
  :: ret == 6 -> ret = 0; goto pushed6
  fi;
notifying:
  notify(even, starts);
  even = 0; starts = 0;
  if
  :: ret == 1 -> ret = 0; goto back1
  :: ret == 2 -> ret = 0; goto back2
  :: ret == 3 -> ret = 0; goto back3
  :: ret == 4 -> ret = 0; goto back4
  fi;
gone:
  skip
}

/* ---- the cleaner -------------------------------------------------------------------------- */
#define ANY_SLOT(k) :: s = k
proctype cleaner() {
  byte left = RETIRES; byte s; bit wk; bit more;
  do
  :: left > 0 ->
     left--;
     if EACH(ANY_SLOT) fi;
     atomic { lock == 0 -> lock = 1 }
     if
     :: marked++;
        if
        :: atomic { st[s] == sIdle && !mark[s] -> mark[s] = 1; touch(1 << s) }
        :: else -> marked--
        fi
     :: mark[s] -> retire(s, 1)
     fi;
     lock = 0
  :: break
  od
}

/* ---- a group's end ------------------------------------------------------------------------ */
proctype canceller() {
  byte q; byte until; byte r; bit wk; bit more;
#if FAULT == 21
  discard_group(q, until);
  cancelled = 1;
#else
  cancelled = 1;
  discard_group(q, until);
#endif
  settled();
  atomic { looked = 1; judge_group() }
}

/* ---- a shutdown --------------------------------------------------------------------------- */
proctype closer() {
  byte s; byte t; byte p; byte r; byte i = W; byte until; bit wk; bit more; bit submits;
#if FAULT == 20
  s = 0;
  atomic { lock == 0 -> lock = 1 }
  do :: s < W -> retire(s, 0); s++ :: else -> break od;
  lock = 0;
#endif
  closed = 1;
  atomic { qclosed = 1; until = tail }
#if CLOSES == 2 && CAP > 0
  do
  :: head < until ->
     atomic { lock == 0 -> lock = 1 }
     pop(t, p, 1);
     atomic { if :: t -> unended-- :: else fi; lock = 0 }
     if :: AWAITED(t) -> done[OWNER(t)] = 1 :: else fi;
     t = 0
  :: else -> break
  od;
  notify(1, 1);
#endif
  settled();
#if FAULT != 20
  s = 0;
  atomic { lock == 0 -> lock = 1 }
  do :: s < W -> retire(s, 0); s++ :: else -> break od;
  lock = 0;
#endif
  /* It has ended: and then nothing is left. */
  atomic { lock == 0 && live + starting == 0 -> assert(CAP == 0 || head == tail); assert(tombs == 0); assert(unended == 0) }
  finished++
}

/* ---- at rest ------------------------------------------------------------------------------ */
#define AT_REST(i) ((st[i] == sIdle && parked[i] && !freed[i]) || (st[i] == sFree && freed[i] && !mark[i] && !parked[i]))
#define LISTED(i) (listed[i] == ready[i])
#define LIVES(i) (st[i] != sFree)
#define PARTIES (S + (CLOSES > 0))
proctype judge() {
end_rest:
  timeout ->
  assert(finished == PARTIES);    /* every waiter has returned */
  assert(looked == (CANCELS > 0));
  assert(unended == 0);           /* every accepted task was started, handed back or discarded */
  assert(awake == 0 && notified == 0 && transit == 0 && starting == 0 && lock == 0);
  assert(SUM(IS_MARKED) == marked);
  assert(ALL(AT_REST) && ALL(LISTED));
  assert(SUM(LIVES) == live && (asleep == (live == 0) || CAP == 0));
  assert(CAP == 0 || tail - head == tombs)
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
