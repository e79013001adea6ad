import ExtensionFoundation
import Foundation
import FoundationNetworking
import StageExtension
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

@testable import BackgroundAssets

/// The answers of programs in Apple's shape to the messages of a host.
///
/// Serialized, since a process has one session.
@Suite(.directory, .serialized) struct ExtensionSessionTests {
    private static let group = ApplicationGroupID(unchecked: "com.example.aurora")

    private func request(_ kind: ContentRequest = .install) throws -> ExtensionRequest {
        let root = try TemporaryDirectory.required()
        _ = try root.makeDirectory("shared")
        var request = ExtensionRequest(
            kind,
            application: ApplicationID(unchecked: "com.example.aurora"),
            applicationVersion: "1",
            applicationGroup: Self.group,
            manifest: root.path.appending("manifest.json"),
            container: root.path.appending("shared"),
            scratch: root.path.appending("scratch")
        )
        request.packs = [
            Self.pack("dawn", .essential([.firstInstallation, .subsequentUpdate]), nil, true),
            Self.pack("dusk", .prefetch([.firstInstallation]), #"{"quality":"hd"}"#, true),
            Self.pack("noon", .prefetch([.firstInstallation]), #"{"quality":"uhd"}"#, true),
            Self.pack("rain", .onDemand, nil, false),
        ]
        return request
    }

    private static func pack(
        _ id: String,
        _ policy: DownloadPolicy,
        _ userInfo: String?,
        _ isProposed: Bool
    ) -> ExtensionPack {
        var pack = Pack(
            id: PackID(unchecked: id),
            version: 3,
            policy: policy,
            archive: PackArchive(
                url: "https://cdn.example.com/\(id)",
                format: .tar,
                size: ByteCount(1024),
                digest: Digest(bytes: [UInt8](repeating: 7, count: 32))
            ),
            installedSize: ByteCount(2048),
            fileCount: 1
        )
        pack.userInfo = userInfo
        return ExtensionPack(
            pack,
            urls: pack.urls,
            stagedVersion: nil,
            isProposed: isProposed
        )
    }

    private static func first(essential: Bool) -> ExtensionDownload {
        var first = ExtensionURLDownload(
            identifier: "first",
            url: "https://cdn.example.com/first.bin",
            fileSize: 1024,
            applicationGroup: group
        )
        first.isEssential = essential
        first.priority = BADownload.Priority.max.rawValue
        first.headers = ["Authorization": "Bearer 3f1c"]
        return .url(first)
    }

    private static let later = ExtensionDownload.url(
        ExtensionURLDownload(
            identifier: "later",
            url: "https://cdn.example.com/later.bin",
            fileSize: 4096,
            applicationGroup: group
        )
    )

    @Test(arguments: ContentRequest.allCases) func downloadsAreThoseOfTheProgram(
        _ kind: ContentRequest
    ) async throws {
        let message = ExtensionMessage.downloads(try request(kind))
        #expect(
            await ExtensionSession.answer(to: message, by: BackgroundDownloadHandler())
                == .downloads([Self.first(essential: kind != .periodic), Self.later])
        )
    }

    @Test func theAllowanceIsPassedOn() async throws {
        var request = try request()
        request.restrictedDownloadSizeRemaining = 4096
        request.restrictedEssentialDownloadSizeRemaining = 7
        let info = BAAppExtensionInfo(request)
        #expect(info.restrictedDownloadSizeRemaining == 4096)
        #expect(info.restrictedEssentialDownloadSizeRemaining == 7)
        #expect(
            await ExtensionSession.answer(
                to: .downloads(request),
                by: BackgroundDownloadHandler()
            ) == .downloads([Self.first(essential: true)])
        )
    }

    @Test func aManagedProgramSelectsProposedPacks() async throws {
        func pack(_ id: String, _ essential: Bool) -> ExtensionDownload {
            .pack(PackID(unchecked: id), essential: essential, priority: nil)
        }
        #expect(
            await ExtensionSession.answer(to: .downloads(try request()), by: ManagedHandler())
                == .downloads([pack("dawn", true), pack("dusk", false)])
        )
        #expect(
            await ExtensionSession.answer(
                to: .downloads(try request(.periodic)),
                by: ManagedHandler()
            ) == .downloads([pack("dawn", false), pack("dusk", false)])
        )
    }

    @Test func aFileIsMovedToTheSharedFolder() async throws {
        let request = try request()
        let root = try TemporaryDirectory.required()
        let file = try root.file(creating: "received")
        let message = ExtensionMessage.finished(request, Self.later, file: file.path)
        #expect(
            await ExtensionSession.answer(to: message, by: BackgroundDownloadHandler()) == .nothing
        )
        #expect(FileStatus.exists(request.container.appending("later")))
        #expect(!FileStatus.exists(file.path))
    }

    @Test func anEssentialDownloadThatFailedIsAskedForOnceMore() async throws {
        let failure = ExtensionFailure(code: 202, message: "not allowed")
        let message = ExtensionMessage.failed(
            try request(),
            Self.first(essential: true),
            failure
        )
        #expect(
            await ExtensionSession.answer(to: message, by: BackgroundDownloadHandler())
                == .downloads([Self.first(essential: false)])
        )
        let again = ExtensionMessage.failed(try request(), Self.first(essential: false), failure)
        #expect(
            await ExtensionSession.answer(to: again, by: BackgroundDownloadHandler())
                == .downloads([])
        )
    }

    @Test func challengesAreAnswered() async throws {
        let request = try request()
        func answer(_ method: String, _ host: String) async -> ExtensionAnswer {
            await ExtensionSession.answer(
                to: .challenge(
                    request,
                    Self.later,
                    ExtensionChallenge(method: method, host: host)
                ),
                by: BackgroundDownloadHandler()
            )
        }
        #expect(
            await answer("basic", "cdn.example.com")
                == .challenge(.useCredential(user: "aurora", password: "later"))
        )
        #expect(
            await answer("digest", "cdn.example.com") == .challenge(.cancelAuthenticationChallenge)
        )
        #expect(
            await ExtensionSession.answer(
                to: .challenge(
                    request,
                    Self.later,
                    ExtensionChallenge(method: "basic", host: "a")
                ),
                by: IdleHandler()
            ) == .challenge(.performDefaultHandling)
        )
    }

    /// The downloads that a program may schedule, and when.
    @Test func onlyAFailureHasRoomForOtherDownloads() async throws {
        struct Eager: BADownloaderExtension {
            func downloads(
                for request: BAContentRequest,
                manifestURL: URL,
                extensionInfo: BAAppExtensionInfo
            ) -> Set<BADownload> {
                let download = BADownload.made(of: ExtensionSessionTests.later, state: .created)
                expectRefusal(.callFromExtensionNotAllowed) {
                    try BADownloadManager.shared.scheduleDownload(download)
                }
                return []
            }

            func backgroundDownload(
                _ failedDownload: BADownload,
                failedWithError error: any Error
            ) {
                #expect((error as? BAError)?.code == .downloadFailedToStart)
                let manager = BADownloadManager.shared
                #expect(throws: Never.self) { try manager.schedule(failedDownload) }
                expectRefusal(.downloadAlreadyScheduled) {
                    try manager.schedule(failedDownload)
                }
                expectRefusal(.callFromExtensionNotAllowed) {
                    try manager.startForegroundDownload(failedDownload)
                }
                #expect(throws: Never.self) { try manager.cancel(failedDownload) }
                expectRefusal(.downloadNotScheduled) { try manager.cancel(failedDownload) }
            }

            private func expectRefusal(
                _ code: BAErrorCode,
                _ body: () throws -> Void
            ) {
                do {
                    try body()
                    Issue.record("it was not refused")
                } catch {
                    #expect((error as? BAError)?.code == code)
                }
            }
        }
        let request = try request()
        #expect(
            await ExtensionSession.answer(to: .downloads(request), by: Eager()) == .downloads([])
        )
        let failure = ExtensionFailure(code: 102, message: "no answer")
        #expect(
            await ExtensionSession.answer(
                to: .failed(request, Self.later, failure),
                by: Eager()
            ) == .downloads([])
        )
    }

    @Test func aCopyThatIsNotEssentialIsTheSameOtherwise() {
        let download = BADownload.made(of: Self.first(essential: true), state: .failed)
        let copy = download.removingEssential()
        #expect(copy is BAURLDownload)
        #expect(copy != download)
        #expect(copy.wire == Self.first(essential: false))
        #expect((download.isEssential, copy.isEssential) == (true, false))
        #expect((download.state, copy.state) == (.failed, .created))
        #expect(copy.priority == .max)
    }

    @Test func theSharedFolderIsTheUsersOutsideOfAnExtension() throws {
        let url = FileManager.default
            .containerURL(forSecurityApplicationGroupIdentifier: "com.example.aurora")
        let path = try #require(url?.path(percentEncoded: false))
        #expect(path.hasSuffix("stagepack/groups/com.example.aurora/shared/"))
        #expect(
            FileManager.default
                .containerURL(forSecurityApplicationGroupIdentifier: "../a") == nil
        )
    }
}
