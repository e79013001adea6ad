import StageModel
import StagePublish
import StageSystem
import SystemPackage

extension ManifestFile {
    /// Reads published manifests, and the copies of each that signed metadata beside it names or recently named.
    static func published(_ paths: [String]) throws(CommandFailure) -> [PublishedManifest] {
        var manifests: [PublishedManifest] = []
        for path in paths {
            let above = (FilePath(path).resolved ?? FilePath(path)).removingLastComponent()
            let found = try [ManifestFile(path).read().manifest] + signedCopies(of: path)
            manifests += found.map { PublishedManifest($0, in: above.isEmpty ? "." : above) }
        }
        return manifests
    }

    /// Returns the copies of a manifest that signed metadata names or recently named:
    /// `<SHA-256>.manifest.json`.
    private static func signedCopies(of path: String) throws(CommandFailure) -> [Manifest] {
        let resolved = FilePath(path).resolved ?? FilePath(path)
        let above = resolved.removingLastComponent()
        let names: [String]
        do throws(FileError) {
            names = try Directory.open(above.isEmpty ? "." : above).entries().map(\.path.string)
        } catch {
            throw CommandFailure(output: error)
        }
        guard names.contains("metadata"), let last = resolved.lastComponent?.string
        else { return [] }
        var manifests: [Manifest] = []
        for name in names where name.hasSuffix(".\(last)") {
            guard (try? Digest(hexadecimal: String(name.dropLast(last.utf8.count + 1)))) != nil
            else {
                continue
            }
            let copy = above.isEmpty ? FilePath(name) : above.pushing(FilePath(name))
            manifests.append(try ManifestFile(copy.string).read().manifest)
        }
        return manifests
    }
}
