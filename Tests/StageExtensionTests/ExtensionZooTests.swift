import Glibc
import StageExtension
import StageModel
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Misbehaving extensions: none stops the host, and none leaves files or processes behind.
@Suite(.alone, .directory) struct ExtensionZooTests {
    private static let sh = "/bin/sh"
    private static let short = ExtensionLimits(timeLimit: .milliseconds(300))
    private static let empty = #"echo '{"downloads":[]}'"#

    /// A shell program, and the resulting error; `nil` for an empty response.
    struct Animal: Sendable, CustomTestStringConvertible {
        var testDescription: String
        var program: String
        var limits = ExtensionLimits()
        var error: ExtensionError?

        init(
            _ name: String,
            _ program: String,
            _ limits: ExtensionLimits = ExtensionLimits(),
            _ error: ExtensionError? = nil
        ) {
            testDescription = name
            self.program = program
            self.limits = limits
            self.error = error
        }
    }

    static let zoo: [Animal] = [
        Animal("one that does as it should", "cat >/dev/null; \(empty)"),
        Animal("one that closes its input", "exec <&-; \(empty)"),
        Animal("one that does not read", empty),
        Animal(
            "one that gives up",
            "echo first >&2; echo no idea >&2; exit 3",
            .init(),
            .ended(program: sh, .exited(3), standardError: "first\nno idea\n")
        ),
        Animal(
            "one that crashes",
            "kill -SEGV $$",
            .init(),
            .ended(program: sh, .signalled(Int(SIGSEGV)), standardError: "")
        ),
        Animal(
            "one that answers and crashes",
            "\(empty); kill -ABRT $$",
            .init(),
            .ended(program: sh, .signalled(Int(SIGABRT)), standardError: "")
        ),
        Animal(
            "one that hangs",
            "echo wait >&2; exec sleep 600",
            short,
            .deadlineExceeded(program: sh, short.timeLimit, standardError: "wait\n")
        ),
        Animal(
            "one that hangs with everything closed",
            "exec <&- >&- 2>&-; while :; do :; done",
            short,
            .deadlineExceeded(program: sh, short.timeLimit, standardError: "")
        ),
        Animal(
            "one that stops itself",
            "kill -STOP $$",
            short,
            .deadlineExceeded(program: sh, short.timeLimit, standardError: "")
        ),
        Animal(
            "one that ignores the polite signals",
            "trap '' TERM INT HUP XCPU; while :; do sleep 1; done",
            short,
            .deadlineExceeded(program: sh, short.timeLimit, standardError: "")
        ),
        Animal(
            "one that prints without end",
            "exec yes",
            .init(),
            .tooMuchOutput(program: sh, limit: .mebibytes(1))
        ),
        Animal(
            "one that prints rubbish",
            "echo hello",
            .init(),
            .invalidAnswer(
                program: sh,
                .notJSON("expected a value, found 'h' in line 1, column 1")
            )
        ),
        Animal(
            "one that prints nothing",
            ":",
            .init(),
            .invalidAnswer(program: sh, .notJSON("expected a value, found the end"))
        ),
        Animal(
            "one of another protocol",
            #"echo '{"protocol":2,"downloads":[]}'"#,
            .init(),
            .invalidAnswer(program: sh, .unknownVersion(found: 2, known: 1))
        ),
        Animal(
            "one that names no pack",
            #"echo '{"downloads":[{"pack":7}]}'"#,
            .init(),
            .invalidAnswer(
                program: sh,
                .invalid(
                    member: "downloads[0].pack",
                    ValueError(expected: "a string", found: "7")
                )
            )
        ),
        Animal(
            "one that wants a foreign pack",
            #"echo '{"downloads":[{"pack":"dawn"},{"pack":"mars"}]}'"#,
            .init(),
            .notAllowed(program: sh, download: "mars", .unknownPack)
        ),
        Animal(
            "one that wants a pack twice",
            #"echo '{"downloads":[{"pack":"dawn"},{"pack":"dawn"}]}'"#,
            .init(),
            .notAllowed(program: sh, download: "dawn", .duplicate)
        ),
        Animal(
            "one that uses the processor for ever",
            "while :; do :; done",
            ExtensionLimits(timeLimit: .seconds(20), cpuSecondLimit: 1),
            .ended(program: sh, .signalled(Int(SIGKILL)), standardError: "")
        ),
        Animal(
            "one that writes a large file",
            "trap '' XFSZ; head -c 2097152 /dev/zero >\"$TMPDIR/large\" 2>/dev/null || exit 9",
            ExtensionLimits(fileSize: .mebibytes(1)),
            .ended(program: sh, .exited(9), standardError: "")
        ),
        Animal("one that writes to its folders", "echo a >a && mv a \"$HOME/b\" && \(empty)"),
    ]

    @Test(arguments: zoo) func aBadExtensionIsReportedByName(_ animal: Animal) async throws {
        let bench = try Bench()
        let outcome = await bench.outcome(Bench.shell(animal.program, limits: animal.limits))
        switch (outcome, animal.error) {
        case (.success(let downloads), nil): #expect(downloads.isEmpty)
        case (.success, let error?): Issue.record("expected \(error)")
        case (.failure(let found), nil): Issue.record("\(found)")
        case (.failure(let found), let error?): Self.expect(found, error)
        }
        try bench.expectNothingLeft()
        #expect(animal.error.map { "\($0)".contains("'\(Self.sh)'") } ?? true)
    }

    /// Compares errors, except the texts of the JSON reader's errors.
    private static func expect(_ found: ExtensionError, _ expected: ExtensionError) {
        if case .invalidAnswer(sh, .notJSON) = found, case .invalidAnswer(sh, .notJSON) = expected {
            return
        }
        #expect(found == expected)
    }

    @Test func onlyTheLastOfStandardErrorIsKept() async throws {
        let bench = try Bench()
        let text = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done; exit 1"
        let outcome = await bench.outcome(Bench.shell(text))
        guard case .failure(.ended(_, .exited(1), let tail)) = outcome else {
            Issue.record("\(outcome)")
            return
        }
        #expect(tail.utf8.count == 4096)
        #expect(tail.hasSuffix("line 2998\nline 2999\n"))
    }

    /// Ways to leave a process behind.
    @Test(arguments: [
        "sleep 601 <&- >&- 2>&- &",
        "(sleep 601 <&- >&- 2>&- &) &",
        "setsid sleep 601 <&- >&- 2>&- & setsid -f sleep 601; true",
        "nohup sleep 601 & nohup setsid sleep 601 &",
        "sleep 601 & sleep 601 & sleep 601 &",
        "set -m; sleep 601 & set +m",
    ]) func noProcessIsLeft(_ daemons: String) async throws {
        let bench = try Bench()
        let mark = "601.\(UInt32.random(in: .min ... .max))"
        let text = daemons.replacing("601", with: mark)
        let started = ContinuousClock.now
        let answered = await bench.outcome(Bench.shell("\(text)\n\(Self.empty)"))
        #expect(answered == .success([]))
        let limits = Self.short
        let hanging = await bench.outcome(
            Bench.shell("\(text)\nexec sleep \(mark)", limits: limits)
        )
        guard case .failure(.deadlineExceeded) = hanging else {
            Issue.record("\(hanging)")
            return
        }
        #expect(ContinuousClock.now - started < .seconds(25))
        #expect(try !Bench.hasProcess("sleep\0\(mark)"))
        try bench.expectNothingLeft()
    }

    @Test func aForkBombEndsAtTheDeadline() async throws {
        let bench = try Bench()
        let mark = "602.\(UInt32.random(in: .min ... .max))"
        let text = "i=0; while [ $i -lt 200 ]; do sleep \(mark) & i=$((i+1)); done; wait"
        let outcome = await bench.outcome(Bench.shell(text, limits: Self.short))
        guard case .failure(.deadlineExceeded) = outcome else {
            Issue.record("\(outcome)")
            return
        }
        #expect(try !Bench.hasProcess("sleep\0\(mark)"))
    }

    @Test func aProgramThatIsNotThereDoesNotStart() async throws {
        let bench = try Bench()
        let error = FileError("start", path: "/nowhere/at-all", errno: .noSuchFileOrDirectory)
        #expect(
            await bench.outcome(Bench.host("/nowhere/at-all"))
                == .failure(.notStarted(program: "/nowhere/at-all", error))
        )
        try bench.expectNothingLeft()
    }

    @Test func aFileThatIsNoProgramDoesNotStart() async throws {
        let bench = try Bench()
        let file = bench.root.path.appending("manifest.json")
        let error = FileError("start", path: file, errno: .permissionDenied)
        #expect(
            await bench.outcome(Bench.host(file.string))
                == .failure(.notStarted(program: file.string, error))
        )
    }

    @Test func aGroupWithoutASharedFolderIsAnError() async throws {
        var bench = try Bench()
        bench.request.container = bench.root.path.appending("nowhere")
        let error = FileError(
            "confine to",
            path: bench.request.container,
            errno: .noSuchFileOrDirectory
        )
        #expect(
            await bench.outcome(Bench.shell(Self.empty))
                == .failure(.notStarted(program: Self.sh, error))
        )
        try bench.expectNothingLeft()
    }

    @Test func cancellingEndsTheProgram() async throws {
        let bench = try Bench()
        let mark = "603.\(UInt32.random(in: .min ... .max))"
        let host = Bench.shell("sleep \(mark) & exec sleep \(mark)")
        let outcome = await withTaskGroup(of: Result<[ExtensionDownload], ExtensionError>.self) {
            group in
            group.addTask { await bench.outcome(host) }
            group.cancelAll()
            return await group.next()
        }
        #expect(outcome == .failure(.cancelled(program: Self.sh)))
        #expect(try !Bench.hasProcess("sleep\0\(mark)"))
        try bench.expectNothingLeft()
    }

    /// The parent of the folder is renamed while the program runs, so the folder is not found at its path.
    @Test(arguments: [0, 3]) func anOutcomeCountsIfItsFolderCannotBeRemoved(
        status: Int32
    ) async throws {
        let bench = try Bench(scratch: "extension/scratch")
        _ = try bench.root.makeDirectory("extension")
        let text =
            "touch ready; until [ -e go ]; do sleep 0.01; done; \(Self.empty); exit \(status)"
        async let outcome = bench.outcome(Bench.shell(text))
        try await poll("the program does not start") {
            try bench.root.status("extension/scratch/ready") != nil
        }
        try bench.root.rename("extension", to: "moved", in: bench.root, replacing: false)
        _ = try bench.root.file(creating: "moved/scratch/go")
        switch await outcome {
        case .success(let downloads): #expect(downloads.isEmpty && status == 0)
        case .failure(let error):
            let ending = ExtensionError.ended(
                program: Self.sh,
                .exited(Int(status)),
                standardError: ""
            )
            #expect(error == ending)
        }
        #expect(try bench.root.status("moved/scratch") != nil)
    }

    @Test func aHostMayHaveMoreFilesOpenThanAnExtension() async throws {
        let bench = try Bench()
        var open: [Directory] = []
        for _ in 0..<320 { open.append(try Directory.open(bench.root.path)) }
        let outcome = await bench.outcome(Bench.shell(Self.empty))
        #expect(outcome == .success([]))
        withExtendedLifetime(open) {}
    }
}
