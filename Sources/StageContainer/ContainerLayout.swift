public import StageModel
public import SystemPackage

/// The names inside a container, in one place.
///
/// ```
/// packs/<id>                     → ../generations/<id>/<generation>/content
/// generations/<id>/<generation>/content/…   the files
/// generations/<id>/<generation>/pack.json   what they are
/// generations/<id>/<generation>/files       their digests
/// generations/<id>/<generation>/index       what an indexed pack came from
/// generations/<id>/<generation>/lease       locked shared by readers
/// shared/                        what the group's applications and extensions put there
/// files/<digest>/content/…       single files of packs that are not staged
/// files/<digest>/lease           locked shared by who uses them
/// pins/<id>.json                what holds a pack at its generation
/// trust/<application>/           the signed metadata that the manifest was verified with
/// staging/ downloads/ locks/ manifest/ history/ extension/   not for readers
/// container.json                            the version of all this
/// ```
public enum ContainerLayout {
    /// The version of the layout that this code reads and writes.
    public static let formatVersion = 1

    static let record: FilePath.Component = "container.json"
    /// A link for each staged pack, to its current generation.
    public static let packs: FilePath.Component = "packs"
    /// All generations of all packs, by pack.
    public static let generations: FilePath.Component = "generations"
    static let staging: FilePath.Component = "staging"
    /// Single files of packs that are not staged.
    public static let files: FilePath.Component = "files"
    static let downloads: FilePath.Component = "downloads"
    static let locks: FilePath.Component = "locks"
    static let manifest: FilePath.Component = "manifest"
    static let history: FilePath.Component = "history"
    static let pins: FilePath.Component = "pins"
    static let trust: FilePath.Component = "trust"
    /// What extensions need while they run.
    public static let extensions: FilePath.Component = "extension"
    /// The folder that the applications of the group and their extensions share, for what they like.
    public static let shared: FilePath.Component = "shared"

    /// The directory of a generation that holds the pack's files.
    public static let content: FilePath.Component = "content"
    /// The files of a generation beside its content.
    public static let packRecord: FilePath.Component = "pack.json"
    /// The list of what a generation holds, beside its content.
    public static let listing: FilePath.Component = "files"
    /// The index of a generation that came from one, beside its content.
    public static let index: FilePath.Component = "index"
    static let lease: FilePath.Component = "lease"

    /// The directories that every container has.
    static let directories = [
        packs, generations, staging, downloads, locks, manifest, history,
    ]

    /// The names of everything that a container may have.
    static let known = Set(directories).union([record, files, pins, extensions, shared])

    /// The target of the link that makes `generation` the current one of `id`.
    static func linkTarget(_ id: PackID, _ generation: GenerationName) -> String {
        "../generations/\(id)/\(generation)/content"
    }

    /// The generation that a link of `packs/` names, or `nil` if the link is not one of ours.
    static func generation(inLink target: String, of id: PackID) -> GenerationName? {
        generationText(inLink: target, of: id).flatMap { FilePath.Component(String($0)) }
            .map(GenerationName.init)
    }

    /// The name of the generation that a link of `packs/` names, or `nil` if the link is not one of ours.
    static func generationText(inLink target: String, of id: PackID) -> Substring? {
        // By bytes: a container may have many packs, and String.hasSuffix(_:) compares characters.
        let (prefix, suffix) = ("../generations/\(id.text)/", "/content")
        let length = target.utf8.count - prefix.utf8.count - suffix.utf8.count
        guard length >= 0, target.hasPrefix(prefix),
            target.utf8.suffix(suffix.utf8.count).elementsEqual(suffix.utf8)
        else { return nil }
        let name = target.utf8.dropFirst(prefix.utf8.count).prefix(length)
        return name.contains(UInt8(ascii: "/")) ? nil : Substring(name)
    }
}

extension Identifier {
    /// The identifier as a name in a directory.
    public var component: FilePath.Component {
        guard let component = FilePath.Component(text) else {
            preconditionFailure("an identifier is a file name")
        }
        return component
    }
}

extension ContainerLayout {
    /// Prefix of the folders of extensions that a run has begun to remove.
    public static let removedPrefix = "removed."

    /// What the names of downloads begin with that are no archives.
    static let fileDownloadPrefix = "file-"

    /// The name, within `downloads/`, of a file that no manifest names, by the digest of what it is
    /// known by.
    public static func downloadName(ofFile key: Digest) -> FilePath.Component {
        guard let name = FilePath.Component("\(fileDownloadPrefix)\(key)") else {
            preconditionFailure("hexadecimal digits are a file name")
        }
        return name
    }

    /// The name, within `downloads/`, of an archive that is being fetched: its digest, so that an
    /// archive that two packs or two versions share is fetched once.
    public static func downloadName(of digest: Digest) -> FilePath.Component {
        guard let name = FilePath.Component(digest.description) else {
            preconditionFailure("hexadecimal digits are a file name")
        }
        return name
    }

    /// The part of a name within `downloads/` that says what is downloaded, which its record and its lock share.
    static func digestPart(of name: FilePath.Component) -> Substring {
        // A record that was about to be put in place has a dot before its name, too.
        name.string.drop { $0 == "." }.prefix { $0 != "." }
    }
}
