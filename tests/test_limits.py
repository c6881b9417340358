"""Every test that ctest knows has a time limit: test_limits.py CTEST BUILD_FOLDER."""
import json, subprocess, sys, tempfile
from pathlib import Path

with tempfile.TemporaryDirectory() as folder:  # in the build folder it would write over the log of the run that this is part of
    (Path(folder) / "CTestTestfile.cmake").write_text(f'subdirs("{sys.argv[2]}")\n')
    listed = subprocess.run([sys.argv[1], "--test-dir", folder, "--show-only=json-v1"], check=True, stdout=subprocess.PIPE)
tests = json.loads(listed.stdout)["tests"]
without = [test["name"] for test in tests if not any(one["name"] == "TIMEOUT" and 0 < float(one["value"]) <= 3600 for one in test.get("properties", []))]
print(f"{len(tests)} tests" if not without else f"without a limit (set_tests_properties ... TIMEOUT): {' '.join(without)}")
sys.exit(1 if without or not tests else 0)
