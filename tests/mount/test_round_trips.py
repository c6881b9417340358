"""How many round trips a start waits for, one after the other, whatever a round trip takes: a registry that answers all that is under way at once, when nothing more is asked."""
import contextlib, hashlib, sys, threading, time, traceback
from http.server import ThreadingHTTPServer
from pathlib import Path

from images import noise_image, Registry, Tar, layouts
from machine import expect, Machine
from program import modes, need_fuse, need_root, work_folder

QUIET = 0.4  # seconds without a new request that end a round: much longer than anybody needs to ask for what he can know


class Rounds:
    """A registry over a layout folder whose answers come in rounds: `rounds` has what was asked in each. Without the referrers API it has their tag."""

    def __init__(self, folder, has_api=True):
        self.rounds, self.waiting, self.last, self.turn = [], [], 0.0, threading.Condition()
        rounds = self

        class Answers(Registry):
            layouts = {"image": Path(folder)}

            def answer(self, body):
                if (self.command, self.path) == ("HEAD", "/v2/"):  # on loopback alone: whether HTTP is spoken
                    return super().answer(body)
                rounds.wait(f"{self.command} {self.path.removeprefix('/v2/image/')}")
                if not has_api and self.path.startswith("/v2/image/referrers/"):
                    return self.refuse(404)
                return super().answer(body)

            def manifests(self, folder, name):
                if not has_api and name.startswith("sha256-"):
                    return (*self.referrers(folder, name.replace("-", ":")), "sha256:" + hashlib.sha256(self.referrers(folder, name.replace("-", ":"))[0]).hexdigest())
                return super().manifests(folder, name)

        class Server(ThreadingHTTPServer):
            request_queue_size = 256  # connections that wait for the server would look like a round

        self.server = Server(("127.0.0.1", 0), Answers)
        self.server.handle_error = lambda request, address: None if isinstance(sys.exc_info()[1], ConnectionError) else traceback.print_exc()
        self.reference = f"127.0.0.1:{self.server.server_address[1]}/image:latest"

    def wait(self, what):
        with self.turn:
            self.waiting.append(what)
            self.last, mine = time.monotonic(), len(self.rounds)
            while len(self.rounds) == mine:
                left = self.last + QUIET - time.monotonic()
                if left <= 0:
                    self.rounds.append(sorted(self.waiting))
                    self.waiting = []
                    self.turn.notify_all()
                    return
                self.turn.wait(left)

    @contextlib.contextmanager
    def of(self, what):
        """The rounds of what is done inside."""
        self.rounds.clear()
        done = []
        yield done
        done += self.rounds
        print(f"{what}: {len(done)} rounds, {sum(map(len, done))} requests", *(f"  {' | '.join(one[:60] for one in asked)}" for asked in done), sep="\n", flush=True)

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()


def many_layers(folder):
    """Ten layers: ten maps are asked for."""
    _, contents = noise_image(folder / "unused", 1)
    tars = [Tar().dir("data").file(f"data/part{i}", contents["data/large"][i * 100_000:(i + 1) * 100_000]).bytes() for i in range(10)]
    return layouts.gzip_image(folder / "image", tars, "latest")


def a_first_mount(work, mode, registry, most):
    with Machine(work) as varve:
        with registry.of(f"{mode}: first mount") as asked:
            place = varve.mount(registry.reference, mode)
        everything = [one for round_ in asked for one in round_]
        expect(len(asked) <= most, f"{len(asked)} round trips, at most {most}")
        expect(len(set(everything)) == len(everything), f"something is asked for twice: {everything}")
        expect(not any(one.startswith("HEAD") for one in everything), f"nothing is asked that the content says: {everything}")
        with registry.of(f"{mode}: first read") as asked:
            (place / "data/part3").read_bytes()
        expect(len(asked) <= 2, f"{asked}")
        varve.run("unmount", place, check=True)
        varve.mounts.clear()
        with registry.of(f"{mode}: second mount") as asked:
            varve.mount(registry.reference, mode)
        expect(asked == [["GET manifests/latest"]], f"only what the tag means now is asked: {asked}")


def a_first_mount_of_what_is_signed(work, mode, folder, key, most):
    with Rounds(folder) as registry, Machine(work) as varve:
        varve.config.write_text(varve.config.read_text() + f"[trust]\nkeys = [\"{key}\"]\nindex = \"signed\"\n")
        with registry.of(f"{mode}: first mount, signed") as asked:
            varve.mount(registry.reference, mode)
        expect(len(asked) <= most, f"{len(asked)} round trips, at most {most}")


def main():
    need_root(), need_fuse()
    with work_folder() as work, Machine(work) as owner:
        image = many_layers(work)
        owner.index(image)
        for mode in modes()[:1]:
            with Rounds(work / "image") as registry:
                a_first_mount(work, mode, registry, most=3)  # what the tag means; its config and the list of indexes; the index and what a mount loads of it
            with Rounds(work / "image", has_api=False) as registry:
                a_first_mount(work, mode, registry, most=4)  # of a registry without the API the list is a tag's
            owner.environment["COSIGN_PASSWORD"] = "x"
            owner.run("keygen", "-o", work / "key", check=True)
            owner.run("sign", image, "--key", work / "key.key", "--bundle", check=True)
            a_first_mount_of_what_is_signed(work, mode, work / "image", work / "key.pub", most=6)


main()
sys.exit(0)
