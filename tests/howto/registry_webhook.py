"""What docs/howto/registry-webhook.md takes for given: an image, a registry that tells of pushes, a machine that knows the key."""
import contextlib, sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("oracle", "webhook")]
import layouts, program, tars, webhook_service  # noqa: E402
from test_export import free_port  # noqa: E402
from python_image import expect  # noqa: E402


def prepare(folder, varve):
    program.need_tools("docker-registry", "curl")
    return served(folder, varve)


@contextlib.contextmanager
def served(folder, varve):
    layouts.gzip_image(folder / "build", [tars.Tar().dir("etc").file("etc/motd", b"hello\n" * 1000).bytes()])
    port, tells = free_port(), free_port()
    with webhook_service.registry(folder.parent, port, tells, "Bearer a-long-random-word"):
        varve.environment.update(REGISTRY=f"127.0.0.1:{port}", LISTEN=f"127.0.0.1:{tells}")
        yield


def check(folder, output):
    expect("it is done", ", 1 done, 0 failed" in output, True)  # its index, pushed too, may still be looked at
    expect("its index is there", "<- taken" in output, True)
    expect("health", "\nok\n" in output, True)
    expect("metrics", 'varve_webhook_images{state="done"} 1' in output, True)
