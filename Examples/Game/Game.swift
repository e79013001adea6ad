import BackgroundAssets
import Foundation

/// A game whose levels are asset packs.
@main
struct Game {
    private static let usage = """
        usage: sample-game play LEVEL   download a level if it is not here, and play it
               sample-game levels       list the levels, and those that are here
               sample-game update       ask for new versions, and wait for them
               sample-game delete LEVEL delete a level
               sample-game quality NAME choose the films to download from now on
        """

    static func main() async {
        do {
            try await run()
        } catch {
            FileHandle.standardError.write(Data("sample-game: \(error)\n".utf8))
            exit(1)
        }
    }

    private static func run() async throws {
        let levels = Levels()
        let arguments = Array(CommandLine.arguments.dropFirst())
        switch (arguments.first, arguments.count) {
        case ("play", 2):
            try await levels.prepare(arguments[1])
            print(try levels.text(of: arguments[1]))
        case ("levels", 1):
            for line in try await levels.list() { print(line) }
        case ("update", 1):
            for name in try await levels.update() { print("updated \(name)") }
        case ("delete", 2): try await levels.delete(arguments[1])
        case ("quality", 2): try levels.choose(quality: arguments[1])
        default: print(usage)
        }
    }
}
