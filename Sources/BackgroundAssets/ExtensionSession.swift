import Dispatch
import ExtensionFoundation
import Foundation
import FoundationNetworking
import Glibc
import StageExtension
import StageModel
import StageSystem
import Synchronization
import SystemPackage

/// The request of the process, for those parts of Apple's interface that do not receive it as an argument.
///
/// A process answers one message, so there is at most one session.
enum ExtensionSession {
    private struct State {
        var message: ExtensionMessage?
        var scheduled: [BADownload] = []
    }

    private static let state = Mutex(State())

    /// The request; `nil` in a process that is not an extension.
    static var request: ExtensionRequest? { state.withLock { $0.message?.request } }

    /// The packs of the request, in the order of the manifest.
    static var assetPacks: [AssetPack] { request?.packs.map { AssetPack($0) } ?? [] }

    /// Adds a download to the answer.
    ///
    /// - Throws: ``BAError`` if the answer cannot contain downloads, or contains it already.
    static func schedule(_ download: BADownload) throws {
        try state.withLock { state in
            guard case .failed? = state.message else {
                throw BAError(
                    .callFromExtensionNotAllowed,
                    message: "an extension schedules downloads only when one has failed"
                )
            }
            guard !state.scheduled.contains(where: { $0.identifier == download.identifier }) else {
                throw BAError(
                    .downloadAlreadyScheduled,
                    message: "the download was scheduled before"
                )
            }
            state.scheduled.append(download)
        }
    }

    /// Removes a download from the answer.
    static func cancel(_ download: BADownload) throws {
        try state.withLock { state in
            let index = state.scheduled.firstIndex { $0.identifier == download.identifier }
            guard let index else {
                throw BAError(.downloadNotScheduled, message: "the download was not scheduled")
            }
            state.scheduled.remove(at: index)
        }
    }

    /// The downloads of the answer so far.
    static var scheduled: [BADownload] { state.withLock { $0.scheduled } }

    /// Passes a message to an extension, and returns its answer.
    static func answer(
        to message: ExtensionMessage,
        by program: some BADownloaderExtension
    ) async -> ExtensionAnswer {
        state.withLock { $0 = State(message: message) }
        defer { state.withLock { $0 = State() } }
        switch message {
        case .downloads(let request):
            let downloads = program.downloads(
                for: BAContentRequest(request.request),
                manifestURL: URL(filePath: request.manifest.string),
                extensionInfo: BAAppExtensionInfo(request)
            )
            // Sorted, because sets have no order, and equal requests must have equal answers.
            return .downloads(downloads.map(\.wire).sorted { $0.identifier < $1.identifier })
        case .finished(_, let download, let file):
            program.backgroundDownload(
                BADownload.made(of: download, state: .finished),
                finishedWithFileURL: URL(filePath: file.string)
            )
            return .nothing
        case .failed(_, let download, let failure):
            program.backgroundDownload(
                BADownload.made(of: download, state: .failed),
                failedWithError: BAError(errorCode: failure.code, message: failure.message)
            )
            return .downloads(scheduled.map(\.wire))
        case .challenge(_, let download, let challenge):
            let (disposition, credential) = await program.backgroundDownload(
                BADownload.made(of: download, state: .downloading),
                didReceive: URLAuthenticationChallenge(challenge)
            )
            return .challenge(ExtensionChallengeAnswer(disposition, credential: credential))
        }
    }

    /// Reads the message from standard input, writes the extension's answer, and ends the process.
    static func serve(_ program: some BADownloaderExtension) async -> Never {
        do {
            // Output of the extension, and of programs that it starts, must not be mixed with the answer. A program that kept
            // the pipe open would delay the host, which reads until its end.
            let copy = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0)
            guard copy >= 0, dup2(STDERR_FILENO, STDOUT_FILENO) >= 0 else { end(1) }
            let output = FileHandle(fileDescriptor: copy, closeOnDealloc: true)
            let input = try FileHandle.standardInput.readToEnd() ?? Data()
            let message = try ExtensionMessage(json: Array(input))
            let answer = await answer(to: message, by: program)
            try output.write(contentsOf: Data(answer.json()))
            end(0)
        } catch {
            let text = "expected a message of the host on standard input: \(error)\n"
            // If this cannot be written, the error cannot be reported.
            try? FileHandle.standardError.write(contentsOf: Data(text.utf8))
            end(1)
        }
    }

    /// Ends the process while other threads may be running.
    ///
    /// Not with exit(3), whose handlers would release resources that these threads use.
    private static func end(_ status: CInt) -> Never {
        // Output may still be in the buffers of C streams.
        fflush(nil)
        _exit(status)
    }
}

extension BADownloaderExtension {
    /// Answers the message of the host that started the process, and ends the process.
    ///
    /// The main thread runs the main queue meanwhile.
    public static func main() {
        StandardStreams.openMissing()
        Task { await ExtensionSession.serve(Self()) }
        dispatchMain()
    }
}
