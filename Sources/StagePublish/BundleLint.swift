import StageDigest
import StageFrame
import StageIndex
import StageModel
import StageSystem
import StageTransfer

/// Checks the bundles of an indexed pack, which only its index names.
struct BundleLint: Sendable {
    var manifest: Manifest
    var manifestURL: String
    var pack: Pack
    var reference: PackIndex
    /// The path of the manifest member that names the index.
    var member: String

    /// Downloads the index, and requests the last byte of each bundle from every mirror.
    ///
    /// Does not report an index that cannot be downloaded: another check does.
    func findings(with engine: TransferEngine) async -> [LintFinding] {
        let urls = manifest.urls(for: reference.url, manifestURL: manifestURL)
        guard urls.allSatisfy({ $0.contains(":") }) else { return [] }
        var fetch = FetchRequest(mirrors: urls, limit: reference.size)
        fetch.expectedKind = .archive
        guard case .document(let document)? = try? await engine.fetch(fetch) else { return [] }
        guard Digest(of: document.bytes) == reference.digest else {
            return [
                LintFinding(
                    severity: .error,
                    member: "\(member).sha256",
                    message: "expected \(reference.digest), found \(Digest(of: document.bytes)) "
                        + "at '\(document.url.forDisplay())'",
                    hint: "upload the index again, under a URL of its own for each version"
                )
            ]
        }
        let index: ContentIndex
        switch Result(catching: { try Self.index(in: document.bytes, of: reference, for: pack) }) {
        case .success(let found): index = found
        case .failure(let error as IndexError) where error.neededMemory != nil:
            let message = "the index and its bundles are not compared: \(error.reason)"
            return [LintFinding(severity: .warning, member: member, message: message)]
        case .failure(let error):
            return [LintFinding(severity: .error, member: member, message: "\(error)")]
        }
        let checks = index.bundles.enumerated().flatMap { position, bundle in
            manifest.urls(forBundle: bundle.digest, of: reference, manifestURL: manifestURL).map {
                ObjectCheck(
                    size: ByteCount(bundle.size),
                    digests: [bundle.digest],
                    url: $0,
                    member: "\(member): bundles[\(position)]"
                )
            }
        }
        let found = await ServerLint.findings(of: checks, with: engine)
        return directoryFindings(in: index) + found
    }

    /// Compares the number of directories that the manifest states with that of the index.
    private func directoryFindings(in index: ContentIndex) -> [LintFinding] {
        guard let stated = pack.directoryCount else { return [] }
        let found = index.directoryCount
        guard found != stated else { return [] }
        let expected = stated.quantity(of: "directory", plural: "directories")
        return [
            LintFinding(
                severity: .error,
                member: member,
                message: "expected \(expected), as 'directoryCount' states, found \(found)"
            )
        ]
    }

    /// Decompresses and decodes an index.
    ///
    /// Not in an asynchronous function, where the optimiser of Swift 6.3 can free memory out of order.
    private static func index(
        in bytes: [UInt8],
        of reference: PackIndex,
        for pack: Pack
    ) throws -> ContentIndex {
        var bounds = IndexBounds(fileCount: pack.fileCount, installedSize: pack.installedSize)
        let size = Int(reference.contentSize.rawValue)
        guard size <= bounds.byteCount else {
            throw IndexError(
                offset: 0,
                reason: "it is larger than one of \(pack.fileCount.quantity(of: "file")) can be"
            )
        }
        var decompressor = FrameDecompressor()
        let content = try decompressor.decompress(bytes.span, to: size)
        bounds.memory = ByteCount(AvailableMemory.byteCount(countingSwap: true))
        return try ContentIndex(decoding: content, within: bounds)
    }
}
