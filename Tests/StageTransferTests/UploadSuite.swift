import StageSystem
import SystemPackage

@testable import StageTransfer

/// Tests that send a file from a separate directory.
protocol UploadSuite {
    /// The directory of the file.
    var folder: TemporaryDirectory { get }
}

extension UploadSuite {
    /// Writes a file, and uploads it.
    func upload(
        _ content: [UInt8],
        _ request: UploadRequest,
        _ configuration: TransferConfiguration = .impatient
    ) async throws -> UploadReceipt {
        try folder.directory.write(content, to: "body", durably: false)
        let path = folder.directory.path.appending("body")
        return try await withEngine(configuration) { engine in
            try await engine.upload(request, from: try File.open(reading: path))
        }
    }
}
