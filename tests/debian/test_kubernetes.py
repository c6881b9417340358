#!/usr/bin/env python3
"""The DaemonSet of packaging/kubernetes: each of its forms has members and types that Kubernetes' API knows, and its labels, volumes and scripts fit together."""
import re, sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "oracle"))
import program  # noqa: E402

try:
    import yaml
    from kubernetes import client
except ImportError as error:
    program.skip(f"not installed: {error.name} (python3-kubernetes has both)")

PLACE = Path(__file__).resolve().parents[2] / "packaging/kubernetes"
PLAIN = {"str": str, "int": int, "bool": bool, "float": (int, float), "object": object}


def check(value, kind, where):
    """The API's own description, as the Python client has it: unknown members, wrong types and missing ones are errors."""
    if match := re.fullmatch(r"list\[(.+)\]", kind):
        assert isinstance(value, list), f"{where}: no list"
        for number, one in enumerate(value):
            check(one, match[1], f"{where}[{number}]")
    elif match := re.fullmatch(r"dict\(str, (.+)\)", kind):
        assert isinstance(value, dict) and all(isinstance(name, str) for name in value), f"{where}: no map"
        for name, one in value.items():
            check(one, match[1], f"{where}.{name}")
    elif kind in PLAIN:
        assert isinstance(value, PLAIN[kind]) and (kind == "object" or kind == "bool" or not isinstance(value, bool)), f"{where}: {value!r} is no {kind}"
    else:
        model = getattr(client, kind)
        names = {json: name for name, json in model.attribute_map.items()}
        assert isinstance(value, dict), f"{where}: no object"
        for name, one in value.items():
            assert name in names, f"{where}: {kind} has no {name!r}"
            check(one, model.openapi_types[names[name]], f"{where}.{name}")
        model(**{names[name]: one for name, one in value.items()})  # what must be there is


def patched(document, patch):
    """JSON patches that replace, as kustomize carries them out."""
    for step in yaml.safe_load(patch):
        assert set(step) == {"op", "path", "value"} and step["op"] == "replace", f"a step that this test does not know: {step}"
        *parents, last = step["path"].strip("/").split("/")
        place = document
        for part in parents:
            place = place[int(part) if isinstance(place, list) else part]
        last = int(last) if isinstance(place, list) else last
        place[last]  # replaces what is there
        place[last] = step["value"]


def form(name):
    """The DaemonSet as `kubectl apply -k` sends it."""
    kustomization = yaml.safe_load((PLACE / name / "kustomization.yaml").read_text())
    assert kustomization["kind"] == "Kustomization" and kustomization["apiVersion"] == "kustomize.config.k8s.io/v1beta1", name
    known = {"apiVersion", "kind", "namespace", "resources", "images", "patches", "nameSuffix"}
    assert set(kustomization) <= known, f"{name}: {set(kustomization) - known}"
    (resource,) = kustomization["resources"]
    document = form((PLACE / name / resource).resolve().name) if (PLACE / name / resource).is_dir() else yaml.safe_load((PLACE / name / resource).read_text())
    for image in kustomization.get("images", []):
        pod = document["spec"]["template"]["spec"]
        for container in pod["initContainers"] + pod["containers"]:
            if container["image"] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    for patch in kustomization.get("patches", []):
        assert patch["target"] == {"kind": document["kind"], "name": "varve-installer"}, patch
        patched(document, patch["patch"])
    document["metadata"]["name"] += kustomization.get("nameSuffix", "")
    return document


def check_form(name, action, containerd):
    document = form(name)
    check(document, "V1DaemonSet", name)
    spec, pod = document["spec"], document["spec"]["template"]["spec"]
    assert spec["selector"]["matchLabels"].items() <= spec["template"]["metadata"]["labels"].items(), f"{name}: selects no pod of its own"
    assert pod["nodeSelector"] == {"varve": action}, pod["nodeSelector"]
    (node,) = pod["initContainers"]
    assert {one["name"]: one["value"] for one in node["env"]} == {"ACTION": action, "CONTAINERD": containerd}, f"{name}: {node['env']}"
    assert pod["hostPID"] and node["securityContext"]["privileged"], f"{name}: cannot reach the node"
    assert {mount["name"] for mount in node["volumeMounts"]} == {volume["name"] for volume in pod["volumes"]}, f"{name}: volumes"
    assert not any(container.get("securityContext", {}).get("privileged") for container in pod["containers"]), f"{name}: what stays has rights"
    return document["metadata"]["name"], str(spec["selector"])


def main():
    found = [check_form("base", "install", "containerd"), check_form("k3s", "install", "k3s"), check_form("rke2", "install", "rke2"), check_form("remove", "remove", "containerd")]
    assert len({found[0], found[3]}) == 2 and found[0][0] != found[3][0] and found[0][1] != found[3][1], "one for installing would be taken for one for removing"
    versions = {image["newTag"] for image in yaml.safe_load((PLACE / "base/kustomization.yaml").read_text())["images"]}
    version = re.search(r"project\(varve VERSION (\S+)", (PLACE.parents[1] / "CMakeLists.txt").read_text())[1]
    assert versions == {version}, f"the image is of version {versions}, Varve of {version}"
    for wrong in ({"spec": {"selectr": {}}}, {"kind": 5}, {"spec": {"template": {}}}):  # else nothing above would fail
        try:
            check(wrong, "V1DaemonSet", "wrong")
        except (AssertionError, ValueError):
            continue
        raise AssertionError(f"{wrong} is taken for a DaemonSet")
    print("base, k3s, rke2, remove: as the API has it")


if __name__ == "__main__":
    main()
