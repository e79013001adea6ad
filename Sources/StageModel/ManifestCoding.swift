import FoundationEssentials

extension Manifest {
    /// placeholder
    public init(json: [UInt8]) throws(ManifestError) {
        do { self = try JSONDecoder().decode(Wire.self, from: Data(json)).manifest } catch {
            throw .notJSON("\(error)")
        }
    }
    /// placeholder
    public func urls(for archive: PackArchive, manifestURL: String) -> [String] {
        let bases = baseURLs.isEmpty ? [manifestURL] : baseURLs
        return bases.compactMap {
            URL(string: archive.url, relativeTo: URL(string: $0))?.absoluteString
        }
    }
}
private struct Wire: Decodable {
    struct P: Decodable {
        var id: PackID
        var version: Int
        var policy: [String: Ev]
        var archive: A
        var installedSize: ByteCount
        var fileCount: Int
        var priority: Int?
    }
    struct Ev: Decodable { var installationEventTypes: [InstallationEvent]? }
    struct A: Decodable {
        var url: String
        var format: ArchiveFormat
        var size: ByteCount
        var sha256: Digest
        var fileName: String?
    }
    var application: ApplicationID
    var revision: Int
    var baseURLs: [String]?
    var packs: [P]
    var manifest: Manifest {
        Manifest(
            application: application,
            revision: revision,
            baseURLs: baseURLs ?? [],
            packs: packs.map { p in
                let ev = Set(p.policy.values.first?.installationEventTypes ?? [])
                let policy: DownloadPolicy =
                    p.policy.keys.first == "essential"
                    ? .essential(ev) : p.policy.keys.first == "prefetch" ? .prefetch(ev) : .onDemand
                var k = Pack(
                    id: p.id,
                    version: p.version,
                    policy: policy,
                    archive: PackArchive(
                        url: p.archive.url,
                        format: p.archive.format,
                        size: p.archive.size,
                        digest: p.archive.sha256,
                        fileName: p.archive.fileName
                    ),
                    installedSize: p.installedSize,
                    fileCount: p.fileCount
                )
                k.priority = p.priority ?? 0
                return k
            }
        )
    }
}
