#!/usr/bin/env python3
"""`varve usage collect` as a whole program: results, exit statuses, a full disk. Usage: test_collect.py VARVE"""
import json
import os
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import layouts, tars  # noqa: E402

VARVE = sys.argv.pop(1)
SESSION = "%032x"


def record(**fields):
    return json.dumps(fields) + "\n"


def start(session, day="2026-11-20", **more):
    return record(t="start", v=1, session=SESSION % session, process="%016x" % 1, day=day, writer="recorder 1", **more)


class Collect(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.spool = os.path.join(self.root, "spool")
        os.mkdir(self.spool)

    def write(self, session, text):
        with open(os.path.join(self.spool, SESSION % session + "-" + "%016x" % 1 + ".jsonl"), "a") as file:
            file.write(text)

    def usage(self, *arguments, **more):
        environment = dict(os.environ, VARVE_CONFIG="/dev/null", VARVE_ROOT=os.path.join(self.root, "state"))
        return subprocess.run([VARVE, "usage", *arguments], capture_output=True, text=True, env=environment, check=False, **more)

    def varve(self, *arguments, **more):
        return self.usage("collect", *arguments, **more)

    def collect(self, *arguments, status=0):
        done = self.varve("--json", "--keep-all", *arguments)
        self.assertEqual(done.returncode, status, done.stderr)
        return json.loads(done.stdout)

    def test_takes_each_record_once_into_the_database_under_the_root(self):
        self.write(1, start(1) + record(t="import", m="numpy", how="direct"))
        self.write(2, start(2) + record(t="import", m="numpy", how="direct") + '{"t":"imp')
        result = self.collect(self.spool)
        self.assertEqual([result[name] for name in ("sessions", "events", "duplicates", "pending_bytes", "quarantined")], [2, 4, 0, 9, 0])
        again = self.collect(self.spool)
        self.assertEqual([again[name] for name in ("sessions", "events", "duplicates")], [0, 0, 4])
        path = os.path.join(self.root, "state", "usage.db")
        self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
        with sqlite3.connect(path) as database:
            self.assertEqual(database.execute("SELECT SUM(heard) FROM daily_session").fetchone(), (2,))

    def test_names_what_it_could_not_read_and_ends_with_3(self):
        self.write(1, start(1) + "my secret\n" + record(t="import", m="numpy", how="direct"))
        result = self.collect(self.spool, status=3)
        self.assertEqual([result["quarantined"], result["events"]], [1, 2])
        self.assertEqual(result["notes"][0]["place"], len(start(1)))
        self.assertNotIn("secret", json.dumps(result))
        self.write(1, "again\n")
        text = self.varve("--keep-all", self.spool)
        self.assertEqual(text.returncode, 3)
        self.assertIn("not a JSON object", text.stderr)
        self.assertNotIn("again\n", text.stderr)

    @unittest.skipIf(os.geteuid() != 0, "gives files to a user")
    def test_a_user_of_the_machine_cannot_outvote_the_others(self):
        """A shared spool, into which he writes 400 sessions of a notebook that used nothing."""
        today = time.strftime("%Y-%m-%d", time.gmtime())
        for session in range(1, 411):
            self.write(session, start(session, today) + (record(t="import", m="numpy", how="direct") if session > 400 else ""))
        for name in os.listdir(self.spool):
            if int(name.split("-")[0], 16) <= 400:
                os.chown(os.path.join(self.spool, name), 65534, 65534)
        result = self.collect(self.spool)
        self.assertEqual([result["sessions"], result["surplus"]], [410, 397])
        database = os.path.join(self.root, "state", "usage.db")
        report = self.usage("report", "--db", database, "--json")
        coverage = json.loads(report.stdout)["coverage"]
        self.assertEqual([coverage["launched"], coverage["heard"], coverage["surplus"]], [13, 13, 397])
        self.assertIn("13 of 13 launched; 397 more, of users with many a day, count only by their use", " ".join(self.usage("report", "--db", database).stdout.split()))
        self.write(500, start(500, today))
        os.chown(os.path.join(self.spool, SESSION % 500 + "-" + "%016x" % 1 + ".jsonl"), 65534, 65534)
        self.assertIn("1 of these sessions count only by what they used", self.varve(self.spool).stdout)

    def test_removes_only_what_ended(self):
        self.write(1, start(1) + record(t="end", exit="ok"))
        self.write(2, start(2))
        result = self.collect("--remove", self.spool, status=0)
        self.assertEqual(result["removed_files"], 1)
        self.assertEqual(len(os.listdir(self.spool)), 1)

    def test_ages_out_what_is_old_unless_told_to_keep_all(self):
        self.write(1, start(1, day="2020-01-01"))
        database = os.path.join(self.root, "own.db")
        self.collect("--db", database, self.spool)
        rows = lambda: sqlite3.connect(database).execute("SELECT COUNT(*) FROM session").fetchone()[0]
        self.assertEqual(rows(), 1)
        self.assertEqual(self.varve("--db", database, "--aggregate-days", "36500", self.spool).returncode, 0)
        self.assertEqual(rows(), 0)
        self.assertEqual(sqlite3.connect(database).execute("SELECT SUM(heard) FROM daily_session").fetchone()[0], 1)

    def test_age_turns_sessions_into_counts_and_days_into_months(self):
        for session, day in enumerate(("2020-01-01", "2020-01-02", "2020-02-01", time.strftime("%Y-%m-%d", time.gmtime())), 1):
            self.write(session, start(session, day) + record(t="import", m="numpy", how="direct"))
        database = os.path.join(self.root, "own.db")
        self.collect("--db", database, self.spool)
        count = lambda what: sqlite3.connect(database).execute("SELECT COUNT(*) FROM " + what).fetchone()[0]
        days = count("daily_module")
        aged = json.loads(self.usage("age", "--db", database, "--sessions", "36500d", "--keep", "100y", "--json").stdout)
        self.assertEqual([aged[name] for name in ("aged_sessions", "months_summed", "months_without_days")], [0, 2, 0])
        aged = json.loads(self.usage("age", "--db", database, "--keep", "400d", "--json").stdout)
        self.assertEqual([aged[name] for name in ("aged_sessions", "months_summed", "months_without_days", "partitions_removed")], [3, 0, 2, 0])
        self.assertEqual([count("session"), count("daily_module"), count("daily_session")], [1, days - 3, 4])
        text = self.usage("age", "--db", database)
        self.assertEqual((text.returncode, text.stdout), (0, "0 sessions are only counted from now on; 0 months were summed up; of 0 only the sums are left\n"))
        report = self.usage("report", "--db", database, "--window", "2020-01-02..2020-12-31", "--json")
        told = json.loads(report.stdout)
        self.assertEqual([told["window"]["first"], told["by_day_from"], told["coverage"]["heard"]], ["2020-01-01", "2020-03-01", 3])
        self.assertIn("whole months before 2020-03-01", self.usage("report", "--db", database, "--window", "2020-01-02..2020-12-31").stdout)
        for wrong in (["--keep", "10d"], ["--keep", "2020-01-01..2020-02-01"], ["--sessions", "soon"]):
            self.assertEqual(self.usage("age", "--db", database, *wrong).returncode, 2, wrong)
        self.assertEqual(self.usage("age", "--db", database + ".none").returncode, 1)

    def test_roles_are_printed_or_refused(self):
        shown = self.usage("roles", "--print", "--node", "node1", "--reader", "report")
        self.assertEqual(shown.returncode, 0)
        self.assertIn('GRANT varve_usage_node TO "node1"', shown.stdout)
        for wrong in (["--print", "--node", "a b"], ["--node", "node1"], ["--db", self.root + "/file.db"]):
            self.assertEqual(self.usage("roles", *wrong).returncode, 2, wrong)

    def test_ends_with_75_on_a_full_disk_and_goes_on_later(self):
        for session in range(1, 200):
            self.write(session, start(session) + "".join(record(t="import", m="m%d.n%d" % (session, i), how="direct") for i in range(50)))
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        full = self.varve("--keep-all", self.spool, preexec_fn=limit, restore_signals=False)  # Python ignores SIGXFSZ, and so does what it starts
        self.assertEqual(full.returncode, 75, full.stderr)
        result = self.collect(self.spool)
        self.assertEqual(result["sessions"] + result["duplicates"] // 51, 199)

    def test_reads_the_packages_of_an_image_before_or_after_its_sessions(self):
        site = b"usr/lib/python3/dist-packages/"
        info = site + b"alpha-1.0.dist-info/"
        tar = tars.Tar()
        tar.file(b"usr/bin/python3.11", b"")
        tar.file(site + b"alpha/__init__.py", b"x = 1\n")
        tar.file(info + b"METADATA", b"Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n")
        tar.file(info + b"RECORD", b"alpha/__init__.py,,\nalpha-1.0.dist-info/METADATA,,\nalpha-1.0.dist-info/RECORD,,\n")
        reference = layouts.gzip_image(Path(self.root) / "image", [tar.bytes()])
        database = os.path.join(self.root, "own.db")
        first = self.collect("--db", database, "--image", reference, "--label", "v1")
        self.assertEqual([(image["label"], image["packages"]) for image in first["images"]], [("v1", 1)])
        self.write(1, start(1, image=first["images"][0]["image"]) + record(t="import", m="alpha.core", how="direct"))
        self.collect("--db", database, self.spool)
        used = "SELECT name, sessions FROM daily_use JOIN distribution ON distribution.id = distribution_id"
        self.assertEqual(sqlite3.connect(database).execute(used).fetchall(), [("alpha", 1)])
        later = os.path.join(self.root, "later.db")
        self.collect("--db", later, self.spool)
        self.assertEqual(sqlite3.connect(later).execute(used).fetchall(), [])
        self.collect("--db", later, "--image", reference)
        self.assertEqual(sqlite3.connect(later).execute(used).fetchall(), [("alpha", 1)])

    def test_without_words_takes_what_this_root_has_recorded(self):
        none = self.varve()
        self.assertEqual(none.returncode, 1)
        self.assertIn("state/usage/spool: no session was recorded here", none.stderr)
        os.makedirs(os.path.join(self.root, "state/usage/spool"))
        self.assertEqual(self.varve().returncode, 0)

    def test_refuses_wrong_words(self):
        self.assertEqual(self.varve("--label", "v1", self.spool).returncode, 2)
        self.assertEqual(self.varve("--image", self.spool).returncode, 2)
        self.assertEqual(self.varve("--raw-days", "0", self.spool).returncode, 2)
        missing = self.varve(os.path.join(self.root, "nowhere"))
        self.assertEqual(missing.returncode, 1)
        self.assertIn("nowhere", missing.stderr)


if __name__ == "__main__":
    unittest.main()
