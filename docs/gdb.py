"""The words that `{pool:?}` shows of a pool, without its findings: of a process that is stopped, or of its core dump.

    gdb -p PID -batch -ex "source docs/gdb.py" -ex lazypool
    gdb PROGRAM CORE -batch -ex "source docs/gdb.py" -ex lazypool

The program needs debug information (`debug = true` in its profile). The command reads memory only. It finds the
pools on the stacks of all threads. CONTRIBUTING.md, "When a pool hangs", says how to read what it prints.
"""

import gdb

LISTED, PARKED, GENERATION = 1 << 4, 1 << 5, 1 << 6
# The constants of `work/env.rs` and of `parts/completion/decision.rs`.
DISTRUSTS, DECISIONS = 1 << 5, ["", "has a waiter", "pinned", "left by its waiter"]
FLAGS = [(1, "CLOSED"), (2, "ASLEEP"), (4, "WAITING")]
KINDS = ["dead cells", "look", "leaves", "passes", "over", "wakers", "values", "refused", "end", "upkeep"]


def inner(value):
    """The integer in an atomic, however it is wrapped."""
    while value.type.strip_typedefs().code == gdb.TYPE_CODE_STRUCT:
        value = value[value.type.fields()[0]]
    return int(value)


def names(enum):
    """The names of the values of an enum of the library."""
    fields = gdb.lookup_type("lazypool::" + enum).fields()
    return {field.enumval: field.name.split("::")[-1] for field in fields}


def elements(boxed):
    """The elements of a boxed slice."""
    return [boxed["data_ptr"][i] for i in range(int(boxed["length"]))]


def word(status, states):
    flags = [name for bit, name in [(LISTED, "LISTED"), (PARKED, "PARKED")] if status & bit]
    return " ".join([states[status & 15], *flags, f"#{status // GENERATION}"])


def entries(ring):
    return inner(ring["tail"]) - inner(ring["head"])


def is_locked(mutex):
    return "locked" if inner(mutex["inner"]) else "free"


def show(core):
    """Prints the words of one core."""
    states, cell_states = names("parts::slot::word::State"), names("parts::queue::cell::CellState")
    side = core["gate"]["side"]["value"]
    taken, given = inner(side["taken"]), inner(core["gate"]["given"])
    flags = [name for bit, name in FLAGS if taken & bit]
    print(f"permits {inner(side['bound'])}, in use {(taken >> 3) - (given >> 3)}, gate {flags}")
    counts = inner(core["in_flight"])
    print(f"awake {counts & 0xffffffff}, notified {counts >> 32}")
    print(f"ready entries {entries(core['ready'])}, free entries {entries(core['free'])}")

    queue = core["queue"]
    head, tail, mask = inner(queue["head"]), inner(queue["tail"]), inner(queue["cells"]["index_mask"])
    stamp = inner(queue["cells"]["first"]["pointer"][(head & mask) // 8]["stamp"])
    is_of_lap = stamp & ~7 == head & ~mask
    oldest = cell_states[stamp & 7] if is_of_lap else "Empty"
    laps = (head ^ tail) & ~mask != 0
    cells = int(queue["cells"]["len"]) * laps + ((tail & mask) - (head & mask)) // 8
    print(f"cells in use {cells}, oldest {oldest}, head {head}")
    host = core["host"]
    print(f"threads refused {inner(host['counts']['spawn_failures'])}, last at push {inner(host['counts']['refused_at'])}")
    print(f"trusts counts: {not inner(core['env']['phase']) & DISTRUSTS}")
    traced = host["registry"]
    lock = traced["mutex"]
    registry = lock["data"]["value"]
    figures = [f"{name} {int(registry[name])}" for name in ["live", "starting", "retiring", "limit"]]
    lists = [f"{name} {int(registry[name]['len'])}" for name in ["stopping", "withheld", "bench"]]
    print(f"registry ({is_locked(lock)}, last locked by {inner(traced['locker']):#x}): " + ", ".join(figures + lists))

    lines = host["line"]
    lists = lines["lists"]
    print(f"lines ({is_locked(lists['mutex'])}, last locked by {inner(lists['locker']):#x}): waiting {inner(lines['waiting']['value'])}")

    tasks = idle_listed = 0
    for index, slot in enumerate(elements(core["slots"])):
        status = inner(slot["hot"]["status"])
        record = slot["record"]
        awake, pays = inner(record["awake"]), inner(record["pays"])
        ended = sum(inner(record["ended"][i]) for i in range(4))
        tasks += (status // GENERATION + inner(record["taken"]) - ended) & 0xFFFFFFFF != 0
        idle_listed += states[status & 15] == "Idle" and status & LISTED != 0
        if states[status & 15] != "Free" or awake:
            more = " awake" if awake else ""
            more += " new" if inner(record["is_new"]) else ""
            more += " sleeps" if inner(record["sleeps"]) else ""
            decision = inner(record["decision"]["word"]) & 7
            more += f" {DECISIONS[decision]}" if decision else ""
            owed = [name for bit, name in enumerate(KINDS) if pays >> bit & 1]
            more += f" pays {owed}" if owed else ""
            print(f"slot {index}: {word(status, states)}{more}")
    print(f"tasks of workers {tasks}, idle and listed {idle_listed}")


def variables(frame):
    """The variables of a frame that the compiler has kept."""
    try:
        block = frame.block()
    except RuntimeError:
        return
    while block is not None and block.function is None:
        yield from block
        block = block.superblock
    yield from block or ()


def core_in(value):
    """The core that a value is, or points to; else `None`."""
    for _ in range(4):
        kind = value.type.strip_typedefs()
        if kind.code == gdb.TYPE_CODE_PTR:
            value = value.dereference()
        elif str(kind).startswith("alloc::sync::Arc<lazypool::core::Core<"):
            value = value["ptr"]["pointer"]["data"]
        else:
            return value if str(kind).startswith("lazypool::core::Core<") else None
    return None


def cores():
    """The cores of the pools that are on a stack, by their addresses."""
    found = {}
    for thread in gdb.selected_inferior().threads():
        thread.switch()
        frame = gdb.newest_frame()
        while frame is not None:
            for symbol in variables(frame):
                if "lazypool::core::Core<" not in str(symbol.type):
                    continue
                try:
                    core = core_in(frame.read_var(symbol))
                    if core is not None and inner(core["gate"]["side"]["value"]["bound"]):
                        found[int(core.address)] = core
                except gdb.error:
                    pass  # It is optimized out.
            frame = frame.older()
    return found


class Lazypool(gdb.Command):
    """Shows the pools of this process."""

    def __init__(self):
        super().__init__("lazypool", gdb.COMMAND_DATA)

    def invoke(self, _argument, _from_tty):
        # The names of types depend on the language of the selected frame, which may be one of the C library.
        gdb.execute("set language rust")
        try:
            found = cores()
            print(f"{len(found)} pools on the stacks")
            if not found:
                print("None is on a stack, or the program has no debug information.")
            for address, core in found.items():
                print(f"\npool at {address:#x}")
                show(core)
        finally:
            gdb.execute("set language auto")


Lazypool()
