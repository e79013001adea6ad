import StageContainer
import StageModel
import Testing

/// Conflicts between the applications of a group, and records under wrong names.
struct GroupOffersTests {
    private static func application(_ name: String) -> ApplicationID {
        ApplicationID(unchecked: "net.example.\(name)")
    }

    /// Returns the manifest of an application; the content of a pack is a number.
    private func manifest(
        of name: String,
        _ packs: (name: String, version: Int, content: UInt8)...
    ) -> Manifest {
        let offered = packs.map { pack in
            let digest = Digest(bytes: [UInt8](repeating: pack.content, count: Digest.byteCount))
            return Pack(
                id: PackID(unchecked: pack.name),
                version: pack.version,
                policy: .onDemand,
                archive: PackArchive(url: "a.tar", format: .tar, size: .zero, digest: digest),
                installedSize: .zero,
                fileCount: 1
            )
        }
        return Manifest(application: Self.application(name), revision: 1, packs: offered)
    }

    private func conflict(
        of first: String,
        and second: String,
        pack: String,
        otherPacks: Int
    ) -> OfferConflict {
        var conflict = OfferConflict(
            between: Self.application(first),
            and: Self.application(second),
            pack: PackID(unchecked: pack),
            version: 1
        )
        conflict.otherPacks = otherPacks
        return conflict
    }

    @Test func conflictsAreInTheOrderOfTheManifests() {
        let manifests = [
            manifest(of: "a", ("p", 1, 1), ("q", 1, 1), ("r", 1, 1), ("s", 1, 1)),
            manifest(of: "b", ("p", 1, 2), ("q", 1, 2), ("r", 1, 1), ("s", 2, 2)),
            manifest(of: "c", ("p", 1, 1), ("q", 1, 3)),
            manifest(of: "d", ("p", 1, 3), ("q", 1, 4)),
        ]
        let expected = [
            conflict(of: "a", and: "b", pack: "p", otherPacks: 1),
            conflict(of: "b", and: "c", pack: "p", otherPacks: 1),
            conflict(of: "a", and: "c", pack: "q", otherPacks: 0),
            conflict(of: "a", and: "d", pack: "p", otherPacks: 1),
            conflict(of: "b", and: "d", pack: "p", otherPacks: 1),
            conflict(of: "c", and: "d", pack: "p", otherPacks: 1),
        ]
        #expect(OfferConflict.all(among: manifests) == expected)
        #expect(OfferConflict.all(among: Array(manifests.prefix(1))) == [])
    }

    private func record(_ text: String, of name: String) -> StoredManifest {
        StoredManifest(
            url: "https://example.org/m",
            resolvedURL: "https://example.org/m",
            entityTag: nil,
            receivedAt: 1,
            text: text,
            customFormatApplication: Self.application(name)
        )
    }

    @Test(arguments: [2, 1 << 20])
    func recordsThatDifferAtTheirEndAreNotMistakenForEachOther(length: Int) {
        let text = String(repeating: "x", count: length)
        let (first, second) = (record(text + "1", of: "a"), record(text + "2", of: "b"))
        let damaged = StoredManifest(
            url: first.url,
            resolvedURL: first.url,
            entityTag: nil,
            receivedAt: 1,
            text: text + "3"
        )
        var search = MisplacedRecords()
        let names = [
            (first, "a"), (first, "b"), (second, "a"), (second, "b"), (first, "b"), (second, "b"),
            (damaged, "a"), (damaged, "b"),
        ]
        let found = names.map { search.contains($0.0, under: Self.application($0.1)) }
        #expect(found == [false, true, true, false, true, false, false, false])
    }
}
