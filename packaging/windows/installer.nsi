; Helix Desktop for one user, without an administrator. Made by packaging/windows/installer.py, which defines:
; VERSION, STAGE (the folder with everything), OUTPUT, SIZE (in KB), ICON

Unicode true
Target amd64-unicode
ManifestDPIAware true
ManifestLongPathAware true
RequestExecutionLevel user
SetCompressor /SOLID lzma

!include "MUI2.nsh"
!include "FileFunc.nsh"
!include "LogicLib.nsh"

!define NAME "Helix Desktop"
!define KEY "Software\Microsoft\Windows\CurrentVersion\Uninstall\HelixDesktop"
!define DATA "$LOCALAPPDATA\helix-desktop"

Name "${NAME} ${VERSION}"
OutFile "${OUTPUT}"
InstallDir "$LOCALAPPDATA\Programs\HelixDesktop"
InstallDirRegKey HKCU "Software\HelixDesktop" "InstallDir"
BrandingText "${NAME} ${VERSION}"
VIProductVersion "${VERSION}.0"
VIAddVersionKey "ProductName" "${NAME}"
VIAddVersionKey "FileDescription" "${NAME} installer"
VIAddVersionKey "FileVersion" "${VERSION}"
VIAddVersionKey "LegalCopyright" "The Helix Desktop authors; Apache-2.0"

!define MUI_ICON "${ICON}"
!define MUI_UNICON "${ICON}"
!define MUI_ABORTWARNING
!define MUI_FINISHPAGE_RUN "$INSTDIR\helix-desktop-window.exe"
!insertmacro MUI_PAGE_LICENSE "${STAGE}\LICENSE.txt"
!insertmacro MUI_PAGE_DIRECTORY
!insertmacro MUI_PAGE_INSTFILES
!insertmacro MUI_PAGE_FINISH
!insertmacro MUI_UNPAGE_CONFIRM
!insertmacro MUI_UNPAGE_INSTFILES
!insertmacro MUI_LANGUAGE "English"
!insertmacro MUI_LANGUAGE "SimpChinese"

; A program that runs holds its files: say so before anything is touched.
!macro NotWhileRunning un
Function ${un}NotWhileRunning
  ${If} ${FileExists} "$INSTDIR\python\pythonw.exe"
    ClearErrors
    FileOpen $0 "$INSTDIR\python\pythonw.exe" a
    ${If} ${Errors}
      MessageBox MB_ICONEXCLAMATION|MB_RETRYCANCEL "${NAME} is running. Close it, then go on." /SD IDCANCEL IDRETRY +2
      Abort
      Call ${un}NotWhileRunning
    ${Else}
      FileClose $0
    ${EndIf}
  ${EndIf}
FunctionEnd
!macroend
!insertmacro NotWhileRunning ""
!insertmacro NotWhileRunning "un."

Section
  Call NotWhileRunning
  ; An older version goes first, so that no module of it is left between the new ones.
  RMDir /r "$INSTDIR\python"
  RMDir /r "$INSTDIR\lib"
  SetOutPath "$INSTDIR"
  File /r "${STAGE}/*.*"
  WriteUninstaller "$INSTDIR\uninstall.exe"

  CreateShortcut "$SMPROGRAMS\${NAME}.lnk" "$INSTDIR\helix-desktop-window.exe" "" "$INSTDIR\helix.ico"
  WriteRegStr HKCU "Software\HelixDesktop" "InstallDir" "$INSTDIR"
  WriteRegStr HKCU "Software\Classes\helix" "" "URL:${NAME}"
  WriteRegStr HKCU "Software\Classes\helix" "URL Protocol" ""
  WriteRegStr HKCU "Software\Classes\helix\DefaultIcon" "" "$INSTDIR\helix.ico"
  WriteRegStr HKCU "Software\Classes\helix\shell\open\command" "" '"$INSTDIR\helix-desktop-window.exe" "%1"'
  WriteRegStr HKCU "${KEY}" "DisplayName" "${NAME}"
  WriteRegStr HKCU "${KEY}" "DisplayVersion" "${VERSION}"
  WriteRegStr HKCU "${KEY}" "DisplayIcon" "$INSTDIR\helix.ico"
  WriteRegStr HKCU "${KEY}" "InstallLocation" "$INSTDIR"
  WriteRegStr HKCU "${KEY}" "UninstallString" '"$INSTDIR\uninstall.exe"'
  WriteRegStr HKCU "${KEY}" "QuietUninstallString" '"$INSTDIR\uninstall.exe" /S'
  WriteRegDWORD HKCU "${KEY}" "EstimatedSize" ${SIZE}
  WriteRegDWORD HKCU "${KEY}" "NoModify" 1
  WriteRegDWORD HKCU "${KEY}" "NoRepair" 1
  ; Python changes the PATH: a string of NSIS ends after 1,024 characters, and a PATH cut there would be a disaster.
  nsExec::Exec '"$INSTDIR\python\python.exe" "$INSTDIR\user_path.py" add "$INSTDIR\bin"'
  Pop $0
SectionEnd

Section "Uninstall"
  Call un.NotWhileRunning
  nsExec::Exec '"$INSTDIR\python\python.exe" "$INSTDIR\user_path.py" remove "$INSTDIR\bin"'
  Pop $0
  Delete "$SMPROGRAMS\${NAME}.lnk"
  DeleteRegKey HKCU "${KEY}"
  DeleteRegKey HKCU "Software\Classes\helix"
  DeleteRegKey HKCU "Software\HelixDesktop"
  RMDir /r "$INSTDIR\python"
  RMDir /r "$INSTDIR\lib"
  RMDir /r "$INSTDIR\bin"
  Delete "$INSTDIR\*.*"
  RMDir "$INSTDIR"
  ; Silent, and unless asked: what the user made stays.
  ${If} ${FileExists} "${DATA}\*.*"
    MessageBox MB_YESNO|MB_DEFBUTTON2|MB_ICONQUESTION "Remove your workspaces as well, with all their history?$\r$\n$\r$\n${DATA}" /SD IDNO IDNO keep
    RMDir /r "${DATA}"
    keep:
  ${EndIf}
SectionEnd
