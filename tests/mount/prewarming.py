"""What tests of `varve prewarm` share: a spool of uses, and what the command says it did."""
import datetime, json

from machine import expect


def spool_of(folder, image, used):
    """A spool in which sessions of the image use libraries as often as `used` says."""
    folder.mkdir()
    today, count = datetime.date.today().isoformat(), max(used.values())
    for i in range(count):
        session = f"{i:032x}"
        records = [{"t": "start", "v": 1, "session": session, "process": f"{i:016x}", "day": today, "image": image, "writer": "recorder 1"}, {"t": "launch"}]
        records += [{"t": "import", "m": name, "how": "direct"} for name, sessions in used.items() if i < sessions]
        (folder / f"{session}-{i:016x}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def prewarmed(varve, *arguments, status=0):
    done = varve.run("prewarm", "--json", *arguments)
    expect(done.returncode == status, f"prewarm {arguments}: exit {done.returncode}: {done.stderr.decode()}")
    return json.loads(done.stdout) if status == 0 else None


def summary(result):
    return [(item["kind"], item["name"], item["state"]) for item in result["items"]]
