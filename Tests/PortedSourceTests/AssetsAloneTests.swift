import BackgroundAssets
import Testing

/// A file that imports one framework, as the listings of Apple's documentation do.
struct AssetsAloneTests {
    /// A delegate that needs no further import for the names in its signatures.
    private final class Delegate: NSObject, BADownloadManagerDelegate {
        func download(
            _ download: BADownload,
            didReceive challenge: URLAuthenticationChallenge,
            completionHandler:
                @escaping @Sendable (URLSession.AuthChallengeDisposition, URLCredential?) -> Void
        ) { completionHandler(.performDefaultHandling, nil) }

        func download(_ download: BADownload, failedWithError error: any Error) {}

        func download(_ download: BADownload, finishedWithFileURL fileURL: URL) {}
    }

    /// A switch over all of Apple's requests.
    private func name(of request: BAContentRequest) -> String {
        switch request {
        case .install: "install"
        case .update: "update"
        case .periodic: "periodic"
        case .languageChange: "languageChange"
        @unknown default: "unknown"
        }
    }

    @Test func everyRequestOfApplesHasItsName() {
        #expect(name(of: .languageChange) == "languageChange")
    }

    @Test func aManifestIsReadFromData() throws {
        let text =
            #"{"manifestVersion": 1, "application": "net.example", "revision": 1, "packs": []}"#
        let manifest = try AssetPackManifest(from: Data(text.utf8), appGroupID: "net.example")
        #expect(manifest.assetPacks.isEmpty)
        #expect(throws: (any Error).self) {
            try AssetPackManifest(from: Data("{".utf8), appGroupID: "net.example")
        }
    }

    @Test func anApplicationLearnsHowToDownloadAPack() throws {
        let text = #"""
            {
              "manifestVersion": 1,
              "application": "net.example",
              "revision": 1,
              "packs": [
                {
                  "id": "aurora",
                  "version": 1,
                  "policy": {"onDemand": {}},
                  "archive": {
                    "url": "aurora.tar",
                    "format": "tar",
                    "size": 10,
                    "sha256": "\#(String(repeating: "0a", count: 32))"
                  },
                  "installedSize": 10,
                  "fileCount": 1
                }
              ]
            }
            """#
        let manifest = try AssetPackManifest(from: Data(text.utf8), appGroupID: "net.example")
        #expect(manifest.allDownloads(for: .install).isEmpty)
        let pack = try #require(manifest.assetPack(withID: "aurora"))
        let error = #expect(throws: BAError.self) {
            try BADownloadManager.shared.schedule(pack.download(for: .install))
        }
        #expect(error?.code == .downloadInvalid)
        #expect(error?.message.contains("ensureLocalAvailability(of:)") == true)
    }

    @Test func anErrorIsConvertedToNSErrorWithItsReason() {
        let error: any Error = BAError(
            errorCode: BAErrorCode.downloadAlreadyScheduled.rawValue,
            message: "it was scheduled before"
        )
        let converted = error as NSError
        #expect(converted.domain == BAErrorDomain)
        #expect(BAErrorCode(rawValue: converted.code) == .downloadAlreadyScheduled)
        #expect(converted.localizedDescription == "it was scheduled before")
    }

    @Test func theSessionIsFoundations() {
        #expect(URLSession.shared.delegate == nil)
        #expect(Delegate().isEqual(nil) == false)
    }
}
