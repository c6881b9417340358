"""Signatures against the programs that others verify and make them with: OpenSSL always; skopeo and cosign of Debian 13, and docker-registry, where they can be had. In both directions: what we
sign they accept, what they sign we accept, and what they refuse we refuse."""
import base64, hashlib, json, os, subprocess, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "registry"))
import debian13, layouts  # noqa: E402
from program import Varve, need_tools, work_folder  # noqa: E402
from tars import Tar  # noqa: E402

SIMPLE = "application/vnd.dev.cosign.simplesigning.v1+json"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
ANNOTATION = "dev.cosignproject.cosign/signature"


def expect(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


def shell(*command, data=None):
    done = subprocess.run([str(word) for word in command], input=data, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr.decode()}")
    return done.stdout


class Key:
    """A pair of OpenSSL's making, in `folder`."""
    KINDS = {"p256": ("EC", "ec_paramgen_curve:P-256"), "p384": ("EC", "ec_paramgen_curve:P-384"), "rsa": ("RSA", "rsa_keygen_bits:2048"), "ed25519": ("ED25519", None)}

    def __init__(self, folder, name, kind="p256"):
        algorithm, option = self.KINDS[kind]
        self.kind, self.private, self.public = kind, folder / f"{name}.pem", folder / f"{name}.pub"
        shell("openssl", "genpkey", "-algorithm", algorithm, *(("-pkeyopt", option) if option else ()), "-out", self.private)
        shell("openssl", "pkey", "-in", self.private, "-pubout", "-out", self.public)

    def sign(self, folder, content):
        (folder / "signed").write_bytes(content)
        if self.kind == "ed25519":
            return shell("openssl", "pkeyutl", "-sign", "-rawin", "-inkey", self.private, "-in", folder / "signed")
        return shell("openssl", "dgst", "-sha256", "-sign", self.private, folder / "signed")

    def verify(self, folder, content, signature):
        (folder / "signed").write_bytes(content)
        (folder / "signature").write_bytes(signature)
        if self.kind == "ed25519":
            shell("openssl", "pkeyutl", "-verify", "-rawin", "-pubin", "-inkey", self.public, "-in", folder / "signed", "-sigfile", folder / "signature")
        else:
            shell("openssl", "dgst", "-sha256", "-verify", self.public, "-signature", folder / "signature", folder / "signed")


class Layout:
    """Another writer's and reader's view of an OCI layout folder."""

    def __init__(self, folder):
        self.folder = Path(folder)

    def blob(self, digest):
        return (self.folder / "blobs/sha256" / digest.removeprefix("sha256:")).read_bytes()

    def put(self, content, media_type):
        digest = hashlib.sha256(content).hexdigest()
        (self.folder / "blobs/sha256" / digest).write_bytes(content)
        return {"mediaType": media_type, "digest": "sha256:" + digest, "size": len(content)}

    def entries(self):
        return json.loads((self.folder / "index.json").read_text())["manifests"]

    def add_entry(self, entry, tag=None):
        index = json.loads((self.folder / "index.json").read_text())
        if tag:
            index["manifests"] = [one for one in index["manifests"] if one.get("annotations", {}).get("org.opencontainers.image.ref.name") != tag]
            entry = {**entry, "annotations": {"org.opencontainers.image.ref.name": tag}}
        index["manifests"].append(entry)
        (self.folder / "index.json").write_text(json.dumps(index))

    def tagged(self, tag):
        found = [one for one in self.entries() if one.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag]
        return json.loads(self.blob(found[0]["digest"])) if found else None

    def untag(self, tag):
        index = json.loads((self.folder / "index.json").read_text())
        index["manifests"] = [one for one in index["manifests"] if one.get("annotations", {}).get("org.opencontainers.image.ref.name") != tag]
        (self.folder / "index.json").write_text(json.dumps(index))

    def put_signature(self, digest, payload, signature):
        """As any signer would, by hand."""
        layer = {**self.put(payload, SIMPLE), "annotations": {ANNOTATION: base64.b64encode(signature).decode()}}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": self.put(b"{}", "application/vnd.oci.image.config.v1+json"), "layers": [layer]}
        self.add_entry(self.put(json.dumps(manifest).encode(), MANIFEST), "sha256-" + digest.removeprefix("sha256:") + ".sig")

    def put_bundle(self, digest, size, bundle):
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE, "config": self.put(b"{}", "application/vnd.oci.empty.v1+json"),
                    "layers": [self.put(bundle, BUNDLE)], "subject": {"mediaType": MANIFEST, "digest": digest, "size": size}}
        entry = self.put(json.dumps(manifest).encode(), MANIFEST)
        self.add_entry(entry)
        return entry["digest"]


def signature_tag(digest):
    return "sha256-" + digest.removeprefix("sha256:") + ".sig"


def payload_of(digest, reference, optional=None):
    return json.dumps({"critical": {"identity": {"docker-reference": reference}, "image": {"docker-manifest-digest": digest}, "type": "cosign container image signature"},
                       "optional": optional}, separators=(",", ":")).encode()


def statement_of(digest, predicate="https://sigstore.dev/cosign/sign/v1"):
    return json.dumps({"_type": "https://in-toto.io/Statement/v1", "subject": [{"digest": {"sha256": digest.removeprefix("sha256:")}}], "predicateType": predicate, "predicate": {}}).encode()


def bundle_of(statement, key, folder):
    signed = b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(statement), statement)
    envelope = {"payload": base64.b64encode(statement).decode(), "payloadType": "application/vnd.in-toto+json", "signatures": [{"sig": base64.b64encode(key.sign(folder, signed)).decode()}]}
    return json.dumps({"mediaType": BUNDLE, "verificationMaterial": {"publicKey": {"hint": "x"}}, "dsseEnvelope": envelope}).encode()


class Machine:
    """Another machine than the one that built the index: a root of its own, with settings."""

    def __init__(self, folder, name, binary_of, **trust):
        self.folder = folder / name
        self.folder.mkdir()
        self.home = self.folder / "home"
        self.home.mkdir()
        self.varve = Varve(self.folder)
        self.varve.binary = binary_of.binary
        self.varve.environment.update(VARVE_CONFIG=str(self.folder / "varve.toml"), HOME=str(self.home), COSIGN_PASSWORD="")
        self.set(**trust)

    def set(self, scopes="", **trust):
        lines = ["[trust]"] + [f"{key.replace('_', '-')} = {json.dumps(value if not isinstance(value, list) else [str(one) for one in value])}" for key, value in trust.items()]
        (self.folder / "varve.toml").write_text("\n".join(lines) + "\n" + scopes)

    def policy(self, document):
        path = self.home / ".config/containers/policy.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(document if isinstance(document, str) else json.dumps(document))
        return path

    def check(self, image):
        done = self.varve.run("trust", "check", "--json", image)
        if done.returncode not in (0, 3):
            raise AssertionError(f"trust check {image}: exit {done.returncode}: {done.stderr.decode()}")
        answer = json.loads(done.stdout)
        expect("the exit status says what the document says", done.returncode, 0 if answer["trusted"] else 3)
        return answer


def make_image(folder, seed=b"1"):
    tar = Tar().dir("usr").file("usr/file", b"content " * 1000 + seed).bytes()
    return layouts.gzip_image(folder, [tar], tag="v1")


def with_openssl(work, varve):
    """Each kind of key, without any tool but OpenSSL."""
    image = make_image(work / "image")
    report = varve.index(image)
    layout, index = Layout(work / "image"), report["index"]
    by_digest = f"oci:{work}/image@{report['image']}"
    size = len(layout.blob(index))
    for kind in Key.KINDS:
        key = Key(work, kind, kind)
        signed = varve.json("sign", image, "--key", key.private)
        expect("kinds signed", sorted(one["kind"] for one in signed["signatures"]), ["index", "layer-index"])
        manifest = layout.tagged(signature_tag(index))
        layer = manifest["layers"][-1]
        payload = layout.blob(layer["digest"])
        key.verify(work, payload, base64.b64decode(layer["annotations"][ANNOTATION]))
        expect("what is signed", json.loads(payload)["critical"]["image"]["docker-manifest-digest"], index)
        expect("signatures so far", len(manifest["layers"]), list(Key.KINDS).index(kind) + 1)
        again = varve.json("sign", image, "--key", key.private)
        expect("signed twice is signed once", ([one["added"] for one in again["signatures"]], len(layout.tagged(signature_tag(index))["layers"])), ([False, False], len(manifest["layers"])))
        machine = Machine(work, "of-" + kind, varve, keys=[key.public])
        answer = machine.check(by_digest)
        expect(f"signed with {kind}", (answer["trusted"], len(answer["signers"])), (True, 1))
    stranger = Key(work, "stranger")
    machine = Machine(work, "other", varve, keys=[stranger.public])
    refused = machine.check(by_digest)
    expect("another key", refused["trusted"], False)
    for part in ("4 signatures", "tried", "keygen", "--index-here", "[trust] index"):
        expect(f"the refusal says {part!r}", part in refused["refusal"], True)
    mounted = machine.varve.run("ls", by_digest)
    expect("and the image is not looked into", mounted.returncode, 1)

    # By hand, as others sign.
    tag = signature_tag(index)
    cases = {"good": (payload_of(index, "anything.example/x"), True), "of another manifest": (payload_of(report["image"], "x.example/x"), False),
             "of another kind": (payload_of(index, "x.example/x").replace(b"cosign container", b"atomic container"), False)}
    for name, (payload, wanted) in cases.items():
        layout.put_signature(index, payload, stranger.sign(work, payload))
        expect(f"by hand, {name}", Machine(work, "hand-" + name.replace(" ", "-"), varve, keys=[stranger.public]).check(by_digest)["trusted"], wanted)
    good = payload_of(index, "x.example/x")
    signature = bytearray(stranger.sign(work, good))
    layout.put_signature(index, good.replace(b"x.example", b"y.example"), bytes(signature))
    expect("by hand, payload changed", Machine(work, "hand-changed", varve, keys=[stranger.public]).check(by_digest)["trusted"], False)
    layout.untag(tag)
    expect("no signature any more", Machine(work, "hand-none", varve, keys=[stranger.public]).check(by_digest)["trusted"], False)

    statement = statement_of(index)
    layout.put_bundle(index, size, bundle_of(statement_of(index, "https://spdx.dev/Document"), stranger, work))
    expect("an SBOM is no signature", Machine(work, "bundle-sbom", varve, keys=[stranger.public]).check(by_digest)["trusted"], False)
    layout.put_bundle(index, size, bundle_of(statement, stranger, work))
    expect("a bundle by hand", Machine(work, "bundle", varve, keys=[stranger.public]).check(by_digest)["trusted"], True)

    # Kept: the folder may go.
    machine = Machine(work, "offline", varve, keys=[stranger.public])
    machine.varve.run("ls", by_digest, check=True)
    for entry in layout.entries():
        if entry.get("artifactType") == BUNDLE:
            (layout.folder / "blobs/sha256" / entry["digest"].removeprefix("sha256:")).unlink()
    expect("verified from what is kept", machine.check(by_digest)["trusted"], True)
    machine.set(keys=[work / "p256.pub"])
    expect("a key that is taken from the list counts no more", machine.check(by_digest)["trusted"], False)
    machine.set(keys=[stranger.public], deny=[index])
    expect("deny", machine.check(by_digest)["trusted"], False)
    print("ok: OpenSSL, both directions")


def who_may_sign(work, varve):
    """Only what was built here, or is signed by a key that counts."""
    image = make_image(work / "foreign", b"2")
    varve.index(image)
    key = Key(work, "signer")
    other = Machine(work, "signing", varve)
    refused = other.varve.run("sign", image, "--key", key.private)
    expect("an index of strangers is not signed", (refused.returncode, b"built here" in refused.stderr), (1, True))
    expect("and nothing was written", Layout(work / "foreign").tagged(signature_tag(varve.json("inspect", image)["index"])), None)
    varve.run("sign", image, "--key", key.private, check=True)
    other.set(keys=[key.public])
    second = Key(work, "second")
    expect("what a trusted key has signed may be signed", other.varve.run("sign", image, "--key", second.private).returncode, 0)
    print("ok: who may sign")


def settings(work, varve):
    image = make_image(work / "scoped", b"3")
    index = varve.json("index", image, "--sign", Key(work, "team").private)["index"]
    by_digest = f"oci:{work}/scoped@{varve.json('inspect', image)['image']}"
    machine = Machine(work, "settings", varve)

    def scoped(prefix, keys):
        return f'[[trust.scope]]\nprefix = "{prefix}"\nkeys = {json.dumps([str(one) for one in keys])}\n'

    expect("no key, by digest", machine.check(by_digest)["trusted"], False)
    expect("no key, by tag", machine.check(image)["trusted"], True)
    machine.set(index="signed")
    expect("no key, by tag, but signed wanted", machine.check(image)["trusted"], False)
    machine.set(scoped(f"oci:{work}/scoped", [work / "team.pub"]), index="signed")
    expect("the scope's key", machine.check(image)["trusted"], True)
    machine.set(scoped(f"oci:{work}/sco", [work / "team.pub"]), index="signed")
    expect("a prefix ends at a slash", machine.check(image)["trusted"], False)
    machine.set(scoped(f"oci:{work}", [work / "team.pub"]) + scoped(f"oci:{work}/scoped", [Key(work, "wrong").public]), index="signed")
    expect("the most specific scope counts", machine.check(image)["trusted"], False)
    for text, line in (('index = "sigend"', 2), ('keys = ["nowhere.pub"]', 0), ('kyes = ["x"]', 2), ('deny = ["x"]', 2), ('min-tool = "new"', 2), ('[[trust.scope]]\nkeys = ["x"]', 2)):
        (machine.folder / "varve.toml").write_text("[trust]\n" + text + "\n")
        refused = machine.varve.run("trust", "check", image)
        place = f"varve.toml:{line}" if line else "nowhere.pub"
        expect(f"{text}: {refused.stderr.decode()}", (refused.returncode, place in refused.stderr.decode()), (2, True))
    machine.set(index="any", deny=[index])
    expect("deny is stronger than any", machine.check(image)["trusted"], False)
    print("ok: settings")


ACCEPT, REJECT = [{"type": "insecureAcceptAnything"}], [{"type": "reject"}]


class WithTools:
    """The registry, and the programs of Debian 13."""

    def __init__(self, work, varve, tools, registry):
        self.work, self.varve, self.tools, self.registry = work, varve, tools, registry
        self.repository = f"{registry.host}/team/notebook"
        self.image = f"{self.repository}:v1"
        built = make_image(work / "built", b"4")
        varve.run("image", "export", built, self.image, check=True)
        report = varve.index(self.image)
        self.digest, self.index = report["image"], report["index"]
        self.by_digest = f"{self.repository}@{self.digest}"
        self.at_index = f"{self.repository}@{self.index}"
        (work / "registries.d").mkdir()
        (work / "registries.d/all.yaml").write_text("default-docker:\n  use-sigstore-attachments: true\n")
        (work / "trusted-root.json").write_text('{"mediaType":"application/vnd.dev.sigstore.trustedroot+json;version=0.1"}')
        varve.run("keygen", "-o", work / "ours", check=True)

    def skopeo(self, *words, **options):
        return self.tools.run("skopeo", *words, **options)

    def cosign(self, *words, **options):
        return self.tools.run("cosign", *words, **options)

    def copy(self, reference, policy):
        """Whether skopeo takes it under that policy."""
        file, target = self.work / "policy.json", self.work / "copied"
        file.write_text(json.dumps(policy))
        done = self.skopeo("--policy", file, "--registries.d", self.work / "registries.d", "copy", "--src-tls-verify=false", f"docker://{reference}", f"dir:{target}")
        subprocess.run(["rm", "-rf", target], check=True)
        return done.returncode == 0

    def signed_policy(self, key, identity=None, **more):
        requirement = {"type": "sigstoreSigned", "keyPath": str(key), **more}
        if identity:
            requirement["signedIdentity"] = identity
        return {"default": REJECT, "transports": {"docker": {self.registry.host: [requirement]}}}

    def they_verify_ours(self):
        signed = self.varve.json("sign", self.image, "--key", self.work / "ours.key", "--bundle", "--image")
        expect("signed", sorted(one["kind"] for one in signed["signatures"]), ["image", "index", "layer-index"])
        for one in signed["signatures"]:
            at = f"{self.repository}@{one['manifest']}"
            self.cosign("verify", "--key", self.work / "ours.pub", "--insecure-ignore-tlog=true", at, check=True)
            self.cosign("verify", "--key", self.work / "ours.pub", "--insecure-ignore-tlog=true", "--new-bundle-format", "--trusted-root", self.work / "trusted-root.json", at, check=True)
            if one["kind"] != "layer-index":
                expect(f"skopeo takes the {one['kind']}", self.copy(at if one["kind"] == "index" else self.image, self.signed_policy(self.work / "ours.pub")), True)
        other = Key(self.work, "nobody")
        expect("cosign with another key", self.cosign("verify", "--key", other.public, "--insecure-ignore-tlog=true", self.at_index).returncode != 0, True)
        expect("skopeo with another key", self.copy(self.at_index, self.signed_policy(other.public)), False)
        self.cosign("sign", "--yes", "--key", self.work / "ours.key", "--tlog-upload=false", self.by_digest, check=True)
        print("ok: cosign and skopeo verify ours, and sign with our key")

    def we_verify_theirs(self):
        for name, made in (("cosign", ("cosign", "generate-key-pair", "--output-key-prefix", self.work / "theirs-cosign")),
                           ("skopeo", ("skopeo", "generate-sigstore-key", "--output-prefix", self.work / "theirs-skopeo", "--passphrase-file", "/dev/null"))):
            self.tools.run(*made, check=True)
            private, public = (self.work / f"theirs-{name}{suffix}" for suffix in (".key" if name == "cosign" else ".private", ".pub"))
            machine = Machine(self.work, "theirs-" + name, self.varve, keys=[public])
            expect(f"before {name} has signed", machine.check(self.by_digest)["trusted"], False)
            if name == "cosign":
                self.cosign("sign", "--yes", "--key", private, "--tlog-upload=false", self.at_index, check=True)
            else:
                self.skopeo("--insecure-policy", "--registries.d", self.work / "registries.d", "copy", "--preserve-digests", "--src-tls-verify=false", "--dest-tls-verify=false",
                            "--sign-by-sigstore-private-key", private, "--sign-passphrase-file", "/dev/null", f"docker://{self.at_index}", f"docker://{self.at_index}", check=True)
            expect(f"after {name} has signed", machine.check(self.by_digest)["trusted"], True)
            expect("and the tag keeps all signatures", self.cosign("verify", "--key", self.work / "ours.pub", "--insecure-ignore-tlog=true", self.at_index).returncode, 0)
            expect(f"we sign with {name}'s key", self.varve.run("sign", self.image, "--key", private, "--bundle").returncode, 0)
        self.cosign("generate-key-pair", "--output-key-prefix", self.work / "bundles", check=True)
        machine = Machine(self.work, "theirs-bundle", self.varve, keys=[self.work / "bundles.pub"])
        expect("before the bundle", machine.check(self.by_digest)["trusted"], False)
        # cosign 3 signs so; that of Debian 13 makes the same bundle by attesting.
        (self.work / "predicate.json").write_text("{}")
        self.cosign("attest", "--yes", "--key", self.work / "bundles.key", "--tlog-upload=false", "--new-bundle-format", "--type", "https://spdx.dev/Document",
                    "--predicate", self.work / "predicate.json", self.at_index, check=True)
        expect("an SBOM by cosign is no signature", machine.check(self.by_digest)["trusted"], False)
        self.cosign("attest", "--yes", "--key", self.work / "bundles.key", "--tlog-upload=false", "--new-bundle-format", "--type", "https://sigstore.dev/cosign/sign/v1",
                    "--predicate", self.work / "predicate.json", self.at_index, check=True)
        expect("after cosign's bundle", machine.check(self.by_digest)["trusted"], True)
        print("ok: we verify what cosign and skopeo sign, with keys of theirs")

    def identity(self):
        """A signature for one repository is none for another, though the bytes are the same."""
        elsewhere = f"{self.registry.host}/other/notebook"
        key = Key(self.work, "named")  # has made no bundle, which names no repository
        self.varve.run("sign", self.image, "--key", key.private, check=True)
        self.varve.run("image", "export", "--with-index", self.image, f"{elsewhere}:v1", check=True)  # signatures go along
        machine = Machine(self.work, "identity", self.varve, keys=[key.public])
        expect("signed where it was", machine.check(self.by_digest)["trusted"], True)
        there = f"{elsewhere}@{self.digest}"
        answer = machine.check(there)
        expect("signed for another repository", (answer["trusted"], "has signed it for" in answer["refusal"]), (False, True))
        self.varve.run("sign", f"{elsewhere}:v1", "--key", key.private, check=True)
        expect("signed for this one", machine.check(there)["trusted"], True)
        print("ok: identity")

    def policies(self):
        """skopeo is the judge of policy.json: on images that a machine of ours is to accept or to refuse."""
        plain = Key(self.work, "plain")
        by_cosign = f"{self.registry.host}/team/by-cosign:v1"
        self.varve.run("image", "export", "--with-index", self.image, by_cosign, check=True)
        self.cosign("sign", "--yes", "--key", self.work / "theirs-cosign.key", "--tlog-upload=false", by_cosign, check=True)
        ours, theirs = self.work / "ours.pub", self.work / "theirs-cosign.pub"
        data = base64.b64encode(ours.read_bytes()).decode()
        cases = [
            {"default": ACCEPT}, {"default": REJECT}, {"default": REJECT, "transports": {"docker": {"": ACCEPT}}},
            {"default": ACCEPT, "transports": {"docker": {f"{self.registry.host}/team": REJECT, self.repository: ACCEPT}}},
            {"default": ACCEPT, "transports": {"docker": {self.image: REJECT}}},
            self.signed_policy(ours), self.signed_policy(theirs), self.signed_policy(plain.public), self.signed_policy("/nowhere.pub"),
            *[self.signed_policy(key, {"type": kind}) for key in (ours, theirs) for kind in ("matchExact", "matchRepository", "matchRepoDigestOrExact")],
            self.signed_policy(ours, {"type": "exactReference", "dockerReference": self.image}), self.signed_policy(theirs, {"type": "exactRepository", "dockerRepository": f"{self.registry.host}/team/by-cosign"}),
            self.signed_policy(ours, {"type": "remapIdentity", "prefix": self.registry.host, "signedPrefix": "elsewhere.example"}),
            {"default": REJECT, "transports": {"docker": {self.registry.host: [{"type": "sigstoreSigned", "keyDatas": [base64.b64encode(plain.public.read_bytes()).decode(), data]}]}}},
            {"default": REJECT, "transports": {"docker": {self.registry.host: [{"type": "sigstoreSigned", "keyData": data}, {"type": "reject"}]}}},
            {"default": REJECT, "transports": {"docker": {self.registry.host: [{"type": "sigstoreSigned", "keyData": data, "unknown": 1}]}}},
            {"default": [], "transports": {}}, {"transports": {}}, {"default": [{"type": "insecureAcceptAnything"}], "more": {}},
        ]
        answers = set()
        for number, policy in enumerate(cases):
            for image in (self.image, self.by_digest, by_cosign):
                # Each a machine of its own: what one has verified it keeps, wherever the image is met again.
                machine = Machine(self.work, f"policy-{number}-{[self.image, self.by_digest, by_cosign].index(image)}", self.varve, keys=[ours])
                machine.policy(policy)
                wanted = self.copy(image, policy)
                found = machine.check(image)["policy"]["accepted"]
                expect(f"{image} under {json.dumps(policy)}", found, wanted)
                answers.add(found)
        expect("both answers came", answers, {True, False})
        machine = Machine(self.work, "policies", self.varve, keys=[ours])
        machine.policy({"default": [{"type": "signedBy", "keyType": "GPGKeys", "keyPath": "/x"}]})
        answer = machine.check(self.image)
        expect("what cannot be checked is named", (answer["trusted"], "GPG" in answer["policy"]["refusal"]), (False, True))
        refused = machine.varve.run("ls", self.image)
        expect("and the image is not opened", (refused.returncode, b"GPG" in refused.stderr), (1, True))

        # The policy's key counts for the index as well, and is asked for: without any setting of ours.
        machine.set()
        machine.policy(self.signed_policy(ours))
        answer = machine.check(self.image)
        expect("image and index signed as the policy wants", (answer["trusted"], bool(answer["signers"]), bool(answer["policy"]["signers"])), (True, True, True))
        machine.policy(self.signed_policy(theirs, {"type": "matchRepository"}))
        answer = machine.check(by_cosign)
        expect("the image is signed, its index is not", (answer["policy"]["accepted"], answer["trusted"]), (True, False))
        print(f"ok: {len(cases)} policies as skopeo has it")


def with_tools(work, varve):
    need = [tool for tool in ("docker-registry", "apt-get", "dpkg-deb") if subprocess.run(["which", tool], stdout=subprocess.DEVNULL).returncode]
    if need:
        return print("skipped: skopeo and cosign: not installed: " + " ".join(need))
    import registry_test
    try:
        root = os.environ.get("VARVE_DEBIAN13") or debian13.unpack(work / "debian13")
        (work / "home").mkdir()
        tools = debian13.Tools(root, work / "home")
    except debian13.Missing as error:
        return print(f"skipped: skopeo and cosign of Debian 13: {error}")
    with registry_test.Registry(str(work), "registry", False, None) as registry:
        cases = WithTools(work, varve, tools, registry)
        cases.they_verify_ours()
        cases.we_verify_theirs()
        cases.identity()
        cases.policies()


def main():
    need_tools("openssl")
    with work_folder() as work, Varve(work) as varve:
        (work / "builder-home").mkdir()
        varve.environment.update(VARVE_CONFIG="/dev/null", COSIGN_PASSWORD="", HOME=str(work / "builder-home"))
        with_openssl(work, varve)
        who_may_sign(work, varve)
        settings(work, varve)
        with_tools(work, varve)


if __name__ == "__main__":
    main()
