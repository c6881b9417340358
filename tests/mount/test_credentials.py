"""Credentials that change while an image is mounted: in a file, and from a plugin of the kubelet that hands out short-lived ones."""
import base64, json, subprocess, time
from pathlib import Path

from images import Source, noise_image
from machine import Machine, expect
from program import modes, need_fuse, need_root, work_folder

USER = "node"


class Locked(Source):
    """A registry that wants a password. `expired`: what it says of one that was right."""

    def __init__(self, folder, password):
        super().__init__(folder)
        self.password, self.expired, self.refused, self.old = password, 401, 0, set()
        source, handler = self, self.server.RequestHandlerClass
        served = handler.answer

        def answer(self, body):
            given = self.headers.get("Authorization", "")
            if given == header(source.password):
                return served(self, body)
            source.refused += 1
            self.send_response(source.expired if given in source.old else 401)
            self.send_header("WWW-Authenticate", 'Basic realm="registry"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            self.wfile.flush()
        handler.answer = answer

    def rotate(self, password):
        self.old.add(header(self.password))
        self.password = password


def header(password):
    return "Basic " + base64.b64encode(f"{USER}:{password}".encode()).decode()


def host_of(source):
    return source.reference.partition("/")[0]


def log_in(file, source, password):
    file.write_text(json.dumps({"auths": {host_of(source): {"auth": header(password).split()[1]}}}))


def read(place, path, begin, length):
    with open(place / path, "rb", buffering=0) as file:
        return file.seek(begin) and file.read(length)


def keeps_no_secret(varve, *passwords):
    for password in passwords:
        found = subprocess.run(["grep", "-rlE", f"{password}|{header(password).split()[1]}", varve.root], stdout=subprocess.PIPE, text=True).stdout
        expect(found == "", f"a password lies in {found}")


def a_file_that_changes(varve, source, contents, mode):
    """Parts that nobody has read yet are fetched with what the file says by then."""
    noise, authfile = contents["data/large"], varve.work / "auth.json"
    log_in(authfile, source, "first-secret")
    with varve.config.open("a") as config:
        config.write(f'authfile = "{authfile}"\n')
    place = varve.mount(source.reference, mode)
    expect(read(place, "data/large", 1, 1000) == noise[1:1001], "with the first password")
    source.rotate("second-secret")
    expect(read(place, "data/large", 1, 1000) == noise[1:1001], "what is here needs no password")
    try:
        read(place, "data/large", 12_000_000, 1000)
        raise AssertionError("nobody knows the second password")
    except OSError:
        pass
    log_in(authfile, source, "second-secret")
    expect(read(place, "data/large", 12_000_000, 1000) == noise[12_000_000:12_001_000], "with the second password")
    source.expired = 403
    log_in(authfile, source, "third-secret")  # first: who reads ahead is answered by 403, too, and the file is looked at once in five seconds
    source.rotate("third-secret")
    expect(read(place, "data/large", 24_000_000, 1000) == noise[24_000_000:24_001_000], "where an old password is answered by 403")
    varve.run("unmount", place, check=True)
    varve.mounts.remove(str(place))
    keeps_no_secret(varve, "first-secret", "second-secret", "third-secret")


def configure_plugin(varve, source):
    plugins = varve.work / "plugins"
    plugins.mkdir()
    answer = {"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1", "cacheKeyType": "Registry", "cacheDuration": "12h", "auth": {host_of(source): {"username": USER, "password": "PASSWORD"}}}
    (plugins / "cloud").write_text(f"#!/bin/sh\ncat >> {varve.work}/requests\nsed \"s/PASSWORD/$(cat {varve.work}/password)/\" <<'END'\n{json.dumps(answer)}\nEND\n")
    (plugins / "broken").write_text("#!/bin/sh\necho first-token; exit 1\n")
    for name in ("cloud", "broken"):
        (plugins / name).chmod(0o755)
    provider = "  - name: {}\n    apiVersion: credentialprovider.kubelet.k8s.io/v1\n    matchImages: [\"" + host_of(source) + "\"]\n    defaultCacheDuration: 1h\n"
    (varve.work / "providers.yaml").write_text("apiVersion: kubelet.config.k8s.io/v1\nkind: CredentialProviderConfig\nproviders:\n" + provider.format("broken") + provider.format("cloud"))
    varve.config.write_text(f'credential-provider-config = "{varve.work}/providers.yaml"\ncredential-provider-bin-dir = "{plugins}"\n' + varve.config.read_text())


def a_plugin(varve, source, contents, mode):
    """One that answers for twelve hours what holds for less."""
    noise, password = contents["data/large"], varve.work / "password"
    configure_plugin(varve, source)
    password.write_text("first-token")
    source.rotate("first-token")
    place = varve.mount(source.reference, mode)
    asked = (varve.work / "requests").read_text()
    expect(asked.count("CredentialProviderRequest") == 1 and f'"image":"{host_of(source)}/image"' in asked, asked)
    expect(read(place, "data/large", 1, 1000) == noise[1:1001], "with the first token")
    for i, token in enumerate(("second-token", "third-token"), 1):
        time.sleep(1.1)  # what was said a moment ago is not asked for again
        password.write_text(token)
        source.rotate(token)
        at = i * 12_000_000
        expect(read(place, "data/large", at, 1000) == noise[at:at + 1000], f"with the {token}")
    expect((varve.work / "requests").read_text().count("CredentialProviderRequest") == 3, "asked when it was refused, and only then")
    varve.run("unmount", place, check=True)
    varve.mounts.remove(str(place))
    log = (varve.root / "daemon.log").read_text()
    expect("credential provider broken" in log and "status 1" in log, log)
    keeps_no_secret(varve, "first-token", "second-token", "third-token")


def main():
    need_root()
    need_fuse()
    mode = modes()[0]
    with work_folder() as work:
        image, contents = noise_image(work / "image", megabytes=36)
        with Machine(work) as pipeline:
            pipeline.index(image)
        for case, password in ((a_file_that_changes, "first-secret"), (a_plugin, "none")):
            with Locked(work / "image", password) as source, Machine(work) as varve:
                varve.config.write_text("")
                case(varve, source, contents, mode)
            print(case.__name__, flush=True)


if __name__ == "__main__":
    main()
