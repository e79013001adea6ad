import StageDigest
import StageModel
import StageTesting

/// A pack that is created in code: its files, their archive, and its entry in a manifest.
struct SamplePack: Sendable {
    /// The entries of the pack.
    let files: [TarBuilder.Entry]
    /// The bytes on the server.
    let archive: [UInt8]
    /// The pack in the manifest; a test may change it to a wrong one.
    var pack: Pack

    /// Makes a pack of files and links.
    init(
        _ id: PackID,
        version: Int = 1,
        policy: DownloadPolicy = .essential([.firstInstallation, .subsequentUpdate]),
        _ files: [TarBuilder.Entry]
    ) throws {
        var builder = TarBuilder()
        for file in files { builder.add(file) }
        builder.finish()
        let archive = try ArchiveFormat.tarZstandard.compress(builder.bytes)
        self.init(id, version: version, policy: policy, archive: archive, files)
    }

    /// Makes a pack of an archive that another function has made.
    init(
        _ id: PackID,
        version: Int = 1,
        policy: DownloadPolicy = .essential([.firstInstallation, .subsequentUpdate]),
        archive: [UInt8],
        _ files: [TarBuilder.Entry]
    ) {
        self.files = files
        self.archive = archive
        let kept = files.filter { $0.kind == .file || $0.kind == .link }
        pack = Pack(
            id: id,
            version: version,
            policy: policy,
            archive: PackArchive(
                url: "packs/\(id)-\(version).tar.zst",
                format: .tarZstandard,
                size: ByteCount(archive.count),
                digest: Digest(of: archive)
            ),
            installedSize: kept.reduce(.zero) { $0 + ByteCount($1.content.count) },
            fileCount: kept.count
        )
    }

    /// The path of the archive on the server.
    var path: String { "/\(pack.archive?.url ?? "")" }

    /// The digests of the files, by their paths.
    var digests: [String: Digest] {
        let pairs = files.filter { $0.kind == .file }.map { file in
            (String(decoding: file.name, as: UTF8.self), Digest(of: file.content))
        }
        return Dictionary(uniqueKeysWithValues: pairs)
    }

    /// A pack of a few small files, with other contents for each version.
    static func small(
        _ id: PackID,
        version: Int = 1,
        policy: DownloadPolicy = .essential([.firstInstallation, .subsequentUpdate])
    ) throws -> SamplePack {
        try SamplePack(
            id,
            version: version,
            policy: policy,
            [
                .init("readme.txt", content: Array("\(id) \(version)\n".utf8)),
                .init("bin/tool", content: Array("#!/bin/sh\n".utf8), mode: 0o755),
                .init("images/one.png", content: noise(20_000, seed: UInt64(version))),
            ]
        )
    }

    /// A pack of a few incompressible files of 4 MiB.
    static func large(_ id: PackID, version: Int, mebibytes: Int) throws -> SamplePack {
        precondition(mebibytes >= 4 && mebibytes % 4 == 0, "each file has four mebibytes")
        return try SamplePack(
            id,
            version: version,
            (0..<mebibytes / 4).map { index in
                let seed = UInt64(version * 100 + index)
                return .init("images/\(index).raw", content: noise(4 << 20, seed: seed))
            }
        )
    }
}
