#!/usr/bin/env python3
"""A downloader extension, the same as the one in DownloaderExtension/PackChooser.swift.

Chooses packs by the policies of the manifest, and by the publisher's notes for each pack (userInfo):

- quality: such a pack is downloaded only if the user chose that quality. The application writes the
choice into the file 'quality' of the shared folder; without the file it is 'hd'.
- firstScreen: if it is false, the first launch does not wait for the pack, even if its policy is
essential.

If an essential pack failed, it is requested once more, and the first launch does not wait for it.

Manifests/downloader-extension.md describes the messages. A host starts this program for each message.
"""

import json
import pathlib
import sys

EVENTS = {"install": "firstInstallation", "update": "subsequentUpdate"}


def chosen_quality(container):
    """Returns the quality that the user chose, or the default if the application has not run yet."""
    try:
        return pathlib.Path(container, "quality").read_text(encoding="utf-8").strip()
    except OSError:
        return "hd"


def is_essential(pack, notes, request):
    """Returns whether the first launch waits for a pack."""
    events = pack["policy"].get("essential", {}).get("installationEventTypes", [])
    return EVENTS.get(request) in events and notes.get("firstScreen") is not False


def downloads(message):
    """Returns the response with the downloads of the proposed packs."""
    quality = chosen_quality(message["container"])
    wanted = []
    for pack in message["packs"]:
        notes = pack.get("userInfo") or {}
        if pack["isProposed"] and notes.get("quality", quality) == quality:
            essential = is_essential(pack, notes, message["request"])
            wanted.append({"pack": pack["id"], "essential": essential})
    return {"downloads": sorted(wanted, key=lambda download: download["pack"])}


def failed(message):
    """Returns the response with a download in place of a failed one."""
    download, error = message["download"], message["error"]
    name = download.get("pack") or download["identifier"]
    print(f"'{name}' failed: {error['message']} ({error['code']})", file=sys.stderr)
    return {"downloads": [{**download, "essential": False}] if download.get("essential") else []}


def main():
    """Responds to the one message on standard input."""
    message = json.load(sys.stdin)
    if message["protocol"] != 1:
        sys.exit(f"expected protocol 1, found {message['protocol']}")
    answers = {
        "downloads": downloads,
        "finished": lambda message: {},
        "failed": failed,
        "challenge": lambda message: {"disposition": "performDefaultHandling"},
    }
    json.dump({"protocol": 1, **answers[message["kind"]](message)}, sys.stdout)


if __name__ == "__main__":
    main()
