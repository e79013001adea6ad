import StageDigest
import StageModel
import StageTesting
import Testing

/// A failure after version 1 of a pack was staged, with the message of the program.
struct FailureCase: Sendable, CustomTestStringConvertible {
    let testDescription: String
    /// The exit status.
    let status: Int32
    /// All of standard error, as ``World/masked(_:)`` leaves it.
    let error: String
    /// The command, before the options that name manifest and container.
    var arguments: [String] = ["prefetch"]
    /// `true` if the received bytes stay on disk, so that they need not be downloaded again.
    var keepsDownload = false
    /// The manifest in the options, if it is not the server's.
    var manifest: String?
    /// Sets the world up for the failure.
    let arrange: @Sendable (inout World) throws -> Void

    /// A failure of the manifest; `answer` is the server's response instead.
    static func manifest(
        _ name: String,
        _ answer: Answer,
        status: Int32,
        _ error: String
    ) -> FailureCase {
        FailureCase(testDescription: name, status: status, error: error) { world in
            world.server.answer("/manifest.json", with: answer)
        }
    }

    /// A manifest that is not accepted.
    static func manifest(
        _ name: String,
        text: String,
        status: Int32 = 11,
        _ error: String
    ) -> FailureCase {
        manifest(name, .content(Array(text.utf8)), status: status, error)
    }

    /// A failure of the archive of version 2; `answer` is the server's response instead.
    static func archive(
        _ name: String,
        _ answer: Answer,
        status: Int32,
        keepsDownload: Bool = false,
        _ error: String
    ) -> FailureCase {
        var result = FailureCase(testDescription: name, status: status, error: error) { world in
            let pack = try SamplePack.small(.aurora, version: 2)
            try world.publish(pack)
            world.server.answer(pack.path, with: answer)
        }
        result.keepsDownload = keepsDownload
        return result
    }

    /// A manifest that describes version 2 incorrectly.
    static func pack(
        _ name: String,
        status: Int32,
        keepsDownload: Bool = false,
        _ error: String,
        _ change: @escaping @Sendable (inout Pack) -> Void
    ) -> FailureCase {
        var result = FailureCase(testDescription: name, status: status, error: error) { world in
            var pack = try SamplePack.small(.aurora, version: 2)
            change(&pack.pack)
            try world.publish(pack)
        }
        result.keepsDownload = keepsDownload
        return result
    }

    /// Version 2 in an archive with the promised digest, but with entries that are not allowed.
    static func content(
        _ name: String,
        _ error: String,
        status: Int32 = 30,
        _ archive: @escaping @Sendable () throws -> [UInt8]
    ) -> FailureCase {
        var result = FailureCase(testDescription: name, status: status, error: error) { world in
            let files = [TarBuilder.Entry("a", content: [1]), .init("b", content: [2])]
            let pack = SamplePack(try .aurora, version: 2, archive: try archive(), files)
            try world.publish(pack)
        }
        result.keepsDownload = true
        return result
    }

    /// An archive of a file and of another entry.
    static func hostile(
        _ name: String,
        _ entry: TarBuilder.Entry,
        _ error: String
    ) -> FailureCase {
        content(name, error) {
            var builder = TarBuilder()
            builder.add(.init("a", content: [1]))
            builder.add(entry)
            builder.finish()
            return try ArchiveFormat.tarZstandard.compress(builder.bytes)
        }
    }
}
