/*
 * The legal steps of a slot and of a queue's cell, one a line. A test of the library compares
 * them with `State::next` in src/parts/slot/word.rs and src/parts/queue/cell.rs.
 */
#define SLOT_STEPS \
  SLOT(Free, Held) \
  SLOT(Held, Free) \
  SLOT(Held, Offered) \
  SLOT(Held, Busy) \
  SLOT(Held, Searching) \
  SLOT(Offered, Busy) \
  SLOT(Offered, Held) \
  SLOT(Busy, Idle) \
  SLOT(Busy, Searching) \
  SLOT(Idle, Held) \
  SLOT(Idle, Searching) \
  SLOT(Idle, Retiring) \
  SLOT(Searching, Idle) \
  SLOT(Searching, Busy) \
  SLOT(Searching, Retiring) \
  SLOT(Retiring, Searching) \
  SLOT(Retiring, Free)

#define CELL_STEPS \
  CELL(Empty, Full) \
  CELL(Full, Held) \
  CELL(Held, Empty) \
  CELL(Held, Dead) \
  CELL(Held, Full) \
  CELL(Dead, Empty)

#define sFree 0
#define sHeld 1
#define sOffered 2
#define sBusy 3
#define sSearching 4
#define sIdle 5
#define sRetiring 6

#define cEmpty 0
#define cFull 1
#define cHeld 2
#define cDead 3

#define SLOT(a, b) || (from == s##a && to == s##b)
#define CELL(a, b) || (from == c##a && to == c##b)
