/// A program of an application that the system starts to ask it for decisions.
///
/// Of Apple's framework of the same name only what a downloader extension needs: that it can be made
/// without arguments, and is the program itself (`@main`).
public protocol AppExtension: SendableMetatype {
    /// Creates the extension; it lives for one message of the host.
    init()
}
