"""The ELF files of folders. To open each file of a machine takes a minute where nothing of it is in memory: what is neither executable nor named as such a file is passed over."""
import os, stat


def elf_files(folders, most_bytes=None, any_name=False):
    """Paths in a steady order, of each file one, while they are no more bytes than that together. Links are not followed."""
    total, seen = 0, set()
    for folder in folders:
        for parent, names, files in os.walk(folder):
            names.sort()
            for name in sorted(files):
                path = os.path.join(parent, name)
                try:
                    status = os.lstat(path)
                    if not stat.S_ISREG(status.st_mode) or not (any_name or ".so" in name or name.endswith((".o", ".ko", ".debug")) or status.st_mode & 0o111) or "\n" in path:
                        continue
                    if (status.st_dev, status.st_ino) in seen or (most_bytes and total + status.st_size > most_bytes):
                        continue
                    with open(path, "rb") as file:
                        if file.read(4) != b"\x7fELF":
                            continue
                except OSError:
                    continue
                seen.add((status.st_dev, status.st_ino))
                total += status.st_size
                yield path
