import ArgumentParser
import StageModel

/// The format of an archive on the command line.
struct ArchiveFormatArgument: ExpressibleByArgument {
    let format: ArchiveFormat

    init?(argument: String) {
        guard let format = ArchiveFormat(rawValue: argument) else { return nil }
        self.format = format
    }

    static var allValueStrings: [String] { ArchiveFormat.allCases.map(\.rawValue) }

    static var defaultCompletionKind: CompletionKind { .list(allValueStrings) }
}
