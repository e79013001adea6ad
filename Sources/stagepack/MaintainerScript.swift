import StageModel
import StageSystem

/// The maintainer script of dpkg that has started this program.
enum MaintainerScript {
    /// True if dpkg has started this program in a maintainer script.
    static var isRunning: Bool { ProcessEnvironment.current["DPKG_MAINTSCRIPT_NAME"] != nil }
}

extension SourceOptions {
    /// The root directory of another system that dpkg changes from outside of it (`DPKG_ROOT`), whose packs must not be staged on
    /// this machine; `nil` if there is none, or if the options name a container.
    var dpkgRoot: String? {
        guard container == nil, let root = ProcessEnvironment.current["DPKG_ROOT"], !root.isEmpty
        else { return nil }
        return root
    }

    /// The failure of a command that would change packs of this machine in a maintainer script for another root; `nil` elsewhere.
    var failureForDpkgRoot: CommandFailure? {
        guard MaintainerScript.isRunning, let dpkgRoot else { return nil }
        var failure = CommandFailure.usage(
            "dpkg changes the root '\(dpkgRoot.forDisplay())', and no option names a container there"
        )
        failure.hint = "pass --container DIR"
        return failure
    }
}

/// A command that changes the packs of a container.
protocol ChangingSubcommand: SourcedSubcommand {
    /// True if the command, with its options, changes packs.
    var changesPacks: Bool { get }
}

extension ChangingSubcommand {
    var changesPacks: Bool { true }
}

extension StagePackSubcommand {
    /// Returns the status of a command that changes nothing because dpkg runs its maintainer script for another root; `nil` for
    /// any other command.
    ///
    /// - Throws: ``CommandFailure`` if the command prints JSON, because there is no result.
    func statusForDpkgRoot() throws(CommandFailure) -> ExitStatus? {
        guard let command = self as? any ChangingSubcommand, command.changesPacks,
            let failure = command.source.failureForDpkgRoot
        else { return nil }
        if printsJSON { throw failure }
        Console.note("nothing changed: \(failure.message)")
        return .success
    }
}
