"""Change a checkpoint and update its manifest, as an attacker would."""

import hashlib
import json


def reseal(checkpoint, change=lambda body: None):
    """Update the checksums of the files, then change the manifest, then update its own checksum."""
    path = checkpoint / "manifest.json"
    body = json.loads(path.read_text())
    del body["sha256"]
    for name, listed in body["files"].items():
        content = (checkpoint / name).read_bytes()
        listed.update(bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
    change(body)
    own = hashlib.sha256((json.dumps(body) + "\n").encode()).hexdigest()
    path.write_text(json.dumps({**body, "sha256": own}) + "\n")


def contents(folder):
    """Every file below a folder, and its content."""
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}
