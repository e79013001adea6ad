import Glibc
import StageSystem
import StageTesting
import SystemPackage
import Testing

/// Programs that respond to each line with a line.
@Suite(.directory)
struct ConversationProgramTests {
    private let directory: Directory

    init() throws { directory = try TemporaryDirectory.required() }

    /// Starts a shell script, which finds the test's directory in `$D`.
    private func start(_ script: String) throws -> ConversationProgram {
        let program = directory.path.appending("program")
        try ProgramFile.write("#!/bin/sh\n\(script)\n", to: program)
        return try ConversationProgram(
            program,
            environment: ["D": directory.path.string, "PATH": "/usr/bin:/bin"]
        )
    }

    @Test func theProgramSeesTheEndOfItsInputAndIsWaitedFor() throws {
        let program = try start(#"while read line; do echo "<$line>"; done; : >"$D/ended"; exit 3"#)
        for text in ["one", "two"] {
            let answer = try program.answer(to: Array(text.utf8), limit: 5, within: .seconds(60))
            #expect(answer == Array("<\(text)>".utf8))
        }
        #expect(program.finish(within: .seconds(60)) == .exited(3))
        #expect(try directory.status("ended") != nil)
        #expect(throws: ConversationProgram.Fault.ended) {
            try program.answer(to: [], limit: 5, within: .seconds(60))
        }
    }

    @Test func theLastReferenceEndsTheInput() throws {
        // On a busy machine, the program may need longer than the time after which it is killed.
        for _ in 0..<20 {
            do {
                let program = try start(#"read line; echo; read line; : >"$D/ended""#)
                _ = try program.answer(to: [], limit: 0, within: .seconds(60))
            }
            if try directory.status("ended") != nil { return }
        }
        Issue.record("the program does not read the end of its input")
    }

    @Test(arguments: [
        ("read line; exec sleep 1000", ConversationProgram.Fault.deadlineExceeded),
        // The request is larger than a pipe's buffer.
        ("exec sleep 1000", .deadlineExceeded),
        ("read line; printf half; exec sleep 1000", .deadlineExceeded),
        ("read line; exec >&-; read line", .ended),
        ("exit 0", .ended),
        ("read line; echo 123456; read line", .tooLong),
    ])
    func withoutAnAnswerTheFaultIsNamed(
        script: String,
        fault: ConversationProgram.Fault
    ) throws {
        let program = try start(script)
        // A shell reads lines byte by byte.
        let line = [UInt8](repeating: 0x61, count: script.hasPrefix("exec") ? 1 << 20 : 10)
        let time = Duration.milliseconds(fault == .deadlineExceeded ? 200 : 60_000)
        #expect(throws: fault) { try program.answer(to: line, limit: 5, within: time) }
        _ = program.finish(within: .milliseconds(10))
    }

    @Test func aProgramThatStaysIsKilledWithItsDescendants() async throws {
        let program = try start(
            #"""
            trap "" TERM
            sh -c 'sleep 1000 & echo $$ $! >"$D/part"; mv "$D/part" "$D/pids"; wait' &
            until [ -e "$D/pids" ]; do sleep 0.01; done
            read line; echo; wait
            """#
        )
        _ = try program.answer(to: [], limit: 0, within: .seconds(60))
        let pids = try text(of: directory.path.appending("pids")).split(
            whereSeparator: \.isWhitespace
        )
        .compactMap { pid_t($0) }
        #expect(pids.count == 2)
        #expect(program.finish(within: .milliseconds(10)) == nil)
        // Without a process that reaps orphans, they remain as zombies.
        try await poll {
            pids.allSatisfy { pid in
                let state = (try? text(of: FilePath("/proc/\(pid)/stat")))?.split(separator: ")")
                    .last
                return state.map { $0.hasPrefix(" Z") } ?? true
            }
        }
    }
}
