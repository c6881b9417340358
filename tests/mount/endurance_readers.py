"""Readers of a mount for as long as they are told, for test_endurance.py: each a process, which compares all that it reads, by pread and mapped, with the truth.

`STATE` is memory shared with whoever starts them (class State). What took long is written down; a read that fails or differs ends all with status 1."""
import errno, mmap, os, random, signal, struct, sys, time
from pathlib import Path

DEAD = (errno.ENOTCONN, errno.EIO, errno.ECONNABORTED)  # of a mount whose daemon and keeper have died
LONG = 0.005  # s; shorter reads are only counted
RECORD = struct.Struct("dd")  # when it began, how long it took


class State:
    """An epoch, which is odd while what is mounted may be dead, the word to end, and of each reader its epoch and its number of reads."""

    def __init__(self, path, readers):
        self.size, self.readers = 16 + 16 * readers, readers
        if not path.exists():
            path.write_bytes(b"\0" * self.size)
        with open(path, "r+b") as file:
            self.memory = mmap.mmap(file.fileno(), self.size)

    def get(self, at):
        return struct.unpack_from("<Q", self.memory, at)[0]

    def put(self, at, value):
        struct.pack_into("<Q", self.memory, at, value)

    epoch = property(lambda self: self.get(0), lambda self, value: self.put(0, value))
    ended = property(lambda self: self.get(8), lambda self, value: self.put(8, value))

    def epoch_of(self, reader):
        return self.get(16 + 16 * reader)

    def reads_of(self, reader):
        return self.get(24 + 16 * reader)

    def reads(self):
        return [self.reads_of(reader) for reader in range(self.readers)]


def read_whole(fd, length, offset):
    """A read that comes upon an error returns what it has; the next one tells."""
    got = b""
    while len(got) < length and (more := os.pread(fd, length - len(got), offset + len(got))):
        got += more
    return got


class Reader:
    def __init__(self, number, place, expected, state, log, seed):
        self.number, self.place, self.large, self.state = number, place, expected, state
        self.rng, self.log = random.Random(f"{seed}/{number}"), open(log, "ab", buffering=0)

    def timed(self, read):
        begin = time.monotonic()
        got = read()
        if (took := time.monotonic() - begin) > LONG:
            self.log.write(RECORD.pack(begin, took))
        self.state.put(24 + 16 * self.number, self.state.reads_of(self.number) + 1)
        return got

    def read_once(self, file, mapped):
        offset, length = self.rng.randrange(len(self.large)), self.rng.choice([1, 100, 4096, 4096, 70_000, 70_000, 1_500_000])
        fresh = self.rng.random() < 0.3  # so that the daemon is asked again
        page = offset // 4096 * 4096
        if self.rng.random() < 0.5:
            if fresh:
                mapped.madvise(mmap.MADV_DONTNEED, page, min(length + 4096, len(self.large) - page))
                os.posix_fadvise(file.fileno(), page, length + 4096, os.POSIX_FADV_DONTNEED)
            got = self.timed(lambda: mapped[offset:offset + length])
        else:
            if fresh:
                os.posix_fadvise(file.fileno(), page, length + 4096, os.POSIX_FADV_DONTNEED)
            got = self.timed(lambda: read_whole(file.fileno(), min(length, len(self.large) - offset), offset))
        if got != self.large[offset:offset + length]:
            raise AssertionError(f"{offset}+{length} differs")
        if self.rng.random() < 0.05:
            name = f"f{self.rng.randrange(3000):04}"
            if self.timed(lambda: Path(f"{self.place}/many/{name}").read_text()) != name:
                raise AssertionError(f"{name} differs")
        if self.rng.random() < 0.005 and self.timed(lambda: len(os.listdir(f"{self.place}/many"))) != 3000:
            raise AssertionError("a listing differs")

    def read_while(self, epoch):
        with open(f"{self.place}/data/large", "rb", buffering=0) as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
            while self.state.epoch == epoch and not self.state.ended:
                time.sleep(self.rng.uniform(0, 0.2))
                self.read_once(file, mapped)

    def run(self):
        while not self.state.ended:
            epoch = self.state.epoch
            if epoch % 2:
                time.sleep(0.01)
                continue
            self.state.put(16 + 16 * self.number, epoch)
            try:
                self.read_while(epoch)
            except OSError as error:
                gone = error.errno == errno.ENOENT  # the next daemon has cleaned up
                if self.state.epoch == epoch or not gone and error.errno not in DEAD:
                    raise


def fork_reader(*arguments):
    child = os.fork()
    if child:
        return child
    try:
        Reader(*arguments).run()
        os._exit(0)
    except BaseException as error:  # noqa: B036  in a fork nothing else may end it
        print(f"reader {arguments[0]}, {time.monotonic():.3f}: {type(error).__name__}: {error}", flush=True)
        os._exit(1)


def main():
    place, expected, state_path, logs, count, seed = sys.argv[1:]
    state, truth = State(Path(state_path), int(count)), Path(expected).read_bytes()
    start = lambda number: fork_reader(number, place, truth, state, f"{logs}/{number}", seed)  # noqa: E731
    running = {start(number): number for number in range(int(count))}
    failed = False
    while running:
        child, status = os.wait()
        number = running.pop(child)
        if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS and state.epoch != state.epoch_of(number):
            running[start(number)] = number  # a mapped page of a mount that had died
        elif status != 0:
            print(f"reader {number}, {time.monotonic():.3f}: ended with status {status:#x}", flush=True)
            failed = state.ended = 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
