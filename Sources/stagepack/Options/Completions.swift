import ArgumentParser
import StageContainer
import StageModel
import StagePack
import StageSystem
import StagingService
import SystemPackage

/// Shell completion of registered applications.
enum ApplicationCompletion {
    static var kind: CompletionKind { .custom { _, _, _ in applications().map(\.text) } }

    static func applications() -> [ApplicationID] {
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        // Completions cannot report errors.
        return (try? folders.applications()) ?? []
    }
}

/// Shell completion of packs: those of the container or application that the command line names, else those
/// of all applications.
enum PackCompletion {
    static var kind: CompletionKind {
        .custom { words, _, _ in
            containers(in: words).flatMap(packs).reduce(into: []) { names, name in
                if !names.contains(name) { names.append(name) }
            }
        }
    }

    private static func containers(in words: [String]) -> [FilePath] {
        if let path = value(of: "--container", in: words) { return [FilePath(path)] }
        let named = value(of: "--app", in: words)
        let folders = RegistrationFolders(environment: ProcessEnvironment.current)
        return ApplicationCompletion.applications().filter { named == nil || $0.text == named }
            .compactMap { try? folders.registration(of: $0).value.group }
            .flatMap {
                ContainerLocations.forReading($0, environment: ProcessEnvironment.current)
            }
    }

    private static func value(of option: String, in words: [String]) -> String? {
        if let index = words.firstIndex(of: option), index + 1 < words.count {
            return words[index + 1]
        }
        return words.first { $0.hasPrefix("\(option)=") }.map {
            String($0.dropFirst(option.count + 1))
        }
    }

    /// Returns the packs that are staged in a container or offered by its stored manifests.
    private static func packs(in path: FilePath) -> [String] {
        guard let reader = try? ContainerReader.open(path) else { return [] }
        let manifests = ((try? reader.applications()) ?? []).compactMap { application in
            try? reader.storedManifest(for: application)?.manifest(of: application)
        }
        let offered = manifests.flatMap { $0.packs.map(\.id) }
        let staged = (try? reader.stagedPacks()) ?? []
        return Set(offered + staged).map(\.text).sorted()
    }
}
