"""What kubelet asks of containerd's CRI, by the calls of containerd.py: pods, their containers, images and their disk. Field numbers: api.proto of k8s.io/cri-api, runtime.v1."""
from containerd import field, varint

POD, CONTAINER, NODE = range(3)  # NamespaceMode: whose namespace it is


def number(key, value):
    return varint(key << 3) + varint(value)


def fields(message):
    """{number: [values]}: bytes or whole numbers."""
    found, at = {}, 0

    def read_varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at, value, shift = at + 1, value | (byte & 0x7F) << shift, shift + 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = read_varint()
        kind = key & 7
        if kind == 0:
            value = read_varint()
        else:
            length = read_varint() if kind == 2 else {1: 8, 5: 4}[kind]
            value, at = message[at:at + length], at + length
        found.setdefault(key >> 3, []).append(value)
    return found


def text(message, key):
    return fields(message).get(key, [b""])[0].decode()


class Pod:
    """Use as a context manager: it is stopped and removed with its containers when it ends. On the machine's network and with its users; with `root`, what its root is outside, in namespaces of its own."""

    def __init__(self, node, name, root=None):
        self.node, self.id, self.containers = node, "", []
        self.namespaces = number(1, NODE) + number(2, NODE) + number(3, NODE)
        if root is not None:
            owners = number(1, root) + number(2, 0) + number(3, 65536)
            self.namespaces = number(1, POD) + number(2, CONTAINER) + number(3, POD) + field(5, number(1, POD) + field(2, owners) + field(3, owners))
        logs = node.work / f"logs-{name}"
        logs.mkdir(exist_ok=True)
        self.config = field(1, field(1, name) + field(2, f"uid-{name}") + field(3, "default")) + field(3, str(logs)) + field(8, field(2, field(1, self.namespaces)))

    def __enter__(self):
        self.id = text(self.node.cri("RuntimeService/RunPodSandbox", field(1, self.config)), 1)
        return self

    def __exit__(self, *_):
        self.node.cri("RuntimeService/StopPodSandbox", field(1, self.id))
        for container in self.containers:
            self.node.cri("RuntimeService/RemoveContainer", field(1, container))
        self.node.cri("RuntimeService/RemovePodSandbox", field(1, self.id))

    def start(self, image, name, *command):
        """The container's number, once it runs."""
        config = field(1, field(1, name)) + field(2, field(1, image)) + b"".join(field(3, word) for word in command) + field(11, f"{name}.log") + field(15, field(2, field(3, self.namespaces)))
        container = text(self.node.cri("RuntimeService/CreateContainer", field(1, self.id) + field(2, config) + field(3, self.config)), 1)
        self.containers.append(container)
        self.node.cri("RuntimeService/StartContainer", field(1, container))
        return container

    def run(self, container, *command):
        """What it says, and with what status it ends if that is not 0."""
        answer = fields(self.node.cri("RuntimeService/ExecSync", field(1, container) + b"".join(field(2, word) for word in command) + number(3, 30)))
        said, status = answer.get(1, [b""])[0].decode(), answer.get(3, [0])[0]
        return f"{said}exit {status}: {answer.get(2, [b''])[0].decode()}" if status else said

    def remove(self, container):
        self.node.cri("RuntimeService/StopContainer", field(1, container) + number(2, 0))
        self.node.cri("RuntimeService/RemoveContainer", field(1, container))
        self.containers.remove(container)


def images(node):
    """{reference: bytes as kubelet counts them}"""
    listed = [fields(image) for image in fields(node.cri("ImageService/ListImages", b"")).get(1, [])]
    return {name.decode(): image.get(4, [0])[0] for image in listed for name in image.get(2, [])}


def image_file_system(node):
    """The folder whose free space kubelet asks for."""
    return text(fields(fields(node.cri("ImageService/ImageFsInfo", b""))[1][0])[2][0], 1)


def pull(node, image, user="", password=""):
    auth = field(2, field(1, user) + field(2, password)) if user else b""
    return text(node.cri("ImageService/PullImage", field(1, field(1, image)) + auth), 1)
