import StageExtension
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// The samples in `Examples`, run by the host as an installation would.
@Suite(.directory) struct SampleExtensionTests {
    enum Sample {
        case swift
        case python

        /// The samples that can run: the Swift sample needs the runtime that it is linked with in a directory that an extension
        /// may read.
        static let runnable: [Sample] = {
            guard let maps = try? String(decoding: readMaps(), as: UTF8.self) else {
                return [.python]
            }
            let runtime = maps.split(separator: "\n").first { $0.hasSuffix("/libswiftCore.so") }
            let isReadable =
                runtime?.contains(" /usr/") ?? true || runtime?.contains(" /opt/") == true
            return isReadable ? [.swift, .python] : [.python]
        }()

        /// Memory mappings of this process; the file reports no size.
        private static func readMaps() throws -> [UInt8] {
            let file = try File.open(reading: "/proc/self/maps")
            return try file.readAll(limit: 1 << 24)
        }

        func host() throws -> ExtensionHost {
            switch self {
            case .swift:
                let tests = try #require(FilePath("/proc/self/exe").resolved)
                let program = tests.removingLastComponent()
                    .appending("sample-downloader-extension")
                return Bench.host(program.string)
            case .python:
                let program = Repository.root.appending("Examples/downloader-extension.py")
                return Bench.host(program.string)
            }
        }
    }

    @Test(arguments: Sample.runnable) func packsAreChosenByPolicyAndNotes(
        _ sample: Sample
    ) async throws {
        let bench = try Bench(.install)
        #expect(
            try await sample.host().downloads(for: bench.request) == [
                pack("dawn", essential: true), pack("noon", essential: false),
            ]
        )
        try bench.expectNothingLeft()
    }

    @Test(arguments: Sample.runnable) func theUsersChoiceCounts(_ sample: Sample) async throws {
        let bench = try Bench(.install)
        _ = try bench.root.file(creating: "shared/quality").written("uhd\n")
        #expect(
            try await sample.host().downloads(for: bench.request) == [
                pack("noon", essential: false), pack("rain", essential: false),
            ]
        )
    }

    @Test(arguments: Sample.runnable) func nothingIsEssentialAtACheck(
        _ sample: Sample
    ) async throws {
        let bench = try Bench(.periodic)
        #expect(
            try await sample.host().downloads(for: bench.request) == [
                pack("dawn", essential: false), pack("noon", essential: false),
            ]
        )
    }

    @Test(arguments: Sample.runnable) func anEssentialPackThatFailedIsRequestedOnceMore(
        _ sample: Sample
    ) async throws {
        let bench = try Bench(.install)
        let failure = ExtensionFailure(code: 102, message: "no answer")
        let host = try sample.host()
        #expect(
            try await host.failed(
                pack("dawn", essential: true),
                with: failure,
                for: bench.request
            ) == [pack("dawn", essential: false)]
        )
        #expect(
            try await host.failed(
                pack("dawn", essential: false),
                with: failure,
                for: bench.request
            ) == []
        )
    }

    @Test(arguments: Sample.runnable) func resultsAndChallengesAreTaken(
        _ sample: Sample
    ) async throws {
        let bench = try Bench(.install)
        let host = try sample.host()
        let dawn = pack("dawn", essential: true)
        try await host.finished(dawn, file: bench.container, for: bench.request)
        let challenge = ExtensionChallenge(method: "basic", host: "cdn.example.com", realm: "a")
        #expect(
            try await host.answer(to: challenge, for: dawn, of: bench.request)
                == .performDefaultHandling
        )
    }
}

/// The sources that the tests were built from.
enum Repository {
    static let root = FilePath(#filePath)
        .removingLastComponent().removingLastComponent().removingLastComponent()
}
